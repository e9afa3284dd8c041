// Checks the dashboard in a real browser: node dashboard.mjs CHROMIUM URL DIRECTORY NAME < expected.json
//
// At the widths of a phone and a desktop, light and dark, it checks that there is no console error, no request except for the page, no text
// cut off or overlapping, and that figures equal the expected ones. Screenshots go to DIRECTORY; the plotted heights go to stdout as JSON.
import { chromium } from 'playwright-core';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [executablePath, url, directory, name] = process.argv.slice(2);
const expected = JSON.parse(readFileSync(0, 'utf8'));
const problems = [];
const backgrounds = new Set();
let seen;

/** In the page: what is on it, and what is wrong with its layout. */
function look() {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const figures = Object.fromEntries(all('data[data-figure]').map((e) => [e.dataset.figure, e.value]));
  const plots = Object.fromEntries(
    all('svg[data-plot]').map((e) => [
      `${e.dataset.plot}/${e.dataset.span}`,
      {
        samples: Number(e.dataset.samples),
        // The height of each line at each point. The horizontal position is not compared because it depends only on the time.
        heights: [...e.querySelectorAll('path')].map((p) => [...p.getAttribute('d').matchAll(/[ML]\S+ ([\d.]+)/g)].map((at) => Number(at[1]))),
      },
    ]),
  );
  const wrong = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) wrong.push(`the page is ${document.documentElement.scrollWidth} wide, of ${width}`);
  // Each line of text with its rendered box.
  const lines = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest('svg, style')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue;
      lines.push({ node, box, text: node.textContent.trim().slice(0, 40) });
      if (box.left < -0.5 || box.right > width + 0.5) wrong.push(`cut off: "${node.textContent.trim()}" at ${box.left} to ${box.right}`);
      for (let e = parent; e && e !== document.body; e = e.parentElement) {
        const own = e.getBoundingClientRect();
        const hides = getComputedStyle(e).overflow !== 'visible';
        const card = e.matches('.card, .tile, .verdict, .problems li');
        if ((hides || card) && (box.left < own.left - 0.5 || box.right > own.right + 0.5 || box.bottom > own.bottom + 1)) {
          wrong.push(`out of its box: "${node.textContent.trim()}"`);
        }
      }
    }
  }
  for (let i = 0; i < lines.length; i++) {
    for (let j = i + 1; j < lines.length; j++) {
      const [a, b] = [lines[i].box, lines[j].box];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (lines[i].node !== lines[j].node && across > 1 && down > 0.12 * Math.min(a.height, b.height)) {
        wrong.push(`"${lines[i].text}" lies over "${lines[j].text}"`);
      }
    }
  }
  for (const svg of all('svg[data-plot]')) {
    const box = svg.getBoundingClientRect();
    if (box.width < 200 || box.height < 50 || box.right > width) wrong.push(`plot ${svg.dataset.plot} is ${box.width} by ${box.height}`);
  }
  const colour = (e, what) => getComputedStyle(e)[what].match(/[\d.]+/g).slice(0, 3).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const card = colour(document.querySelector('.card'), 'backgroundColor');
  for (const selector of ['.card p', '.legend', '.note', 'figcaption', '.tile h3', 'a']) {
    const e = document.querySelector(selector);
    if (e && contrast(colour(e, 'color'), card) < 4.5) wrong.push(`${selector} is hard to read: ${contrast(colour(e, 'color'), card)}`);
  }
  return {
    figures,
    plots,
    wrong,
    scripts: document.scripts.length,
    time: document.body.dataset.time,
    verdict: document.querySelector('[data-verdict]').dataset.verdict,
    problems: all('[data-problem]').map((e) => e.dataset.problem),
    exporters: Object.fromEntries(all('[data-exporter]').map((e) => [e.dataset.exporter, e.dataset.lag]).sort(([a], [b]) => (a < b ? -1 : 1))),
    background: getComputedStyle(document.body).backgroundColor,
    lines: lines.length,
  };
}

const args = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const profile = mkdtempSync(join(tmpdir(), 'coppice-browser-'));
const context = await chromium.launchPersistentContext(profile, { executablePath, args, headless: true });
// A step that takes this long hangs.
context.setDefaultTimeout(180_000);
try {
  for (const [width, height] of [[360, 780], [1280, 900]]) {
    for (const colorScheme of ['light', 'dark']) {
      const at = `${width} ${colorScheme}`;
      const page = await context.newPage();
      await page.setViewportSize({ width, height });
      await page.emulateMedia({ colorScheme });
      page.on('console', (message) => problems.push(`${at}: console: ${message.text()}`));
      page.on('pageerror', (error) => problems.push(`${at}: ${error}`));
      page.on('requestfailed', (request) => problems.push(`${at}: failed: ${request.url()}`));
      page.on('request', (request) => {
        if (request.url() !== url && !request.url().startsWith('data:')) problems.push(`${at}: asked for ${request.url()}`);
      });
      const response = await page.goto(url, { waitUntil: 'load' });
      if (response.status() !== 200) problems.push(`${at}: status ${response.status()}`);
      seen = await page.evaluate(look);
      problems.push(...seen.wrong.map((what) => `${at}: ${what}`));
      if (seen.scripts > 0) problems.push(`${at}: there is a script`);
      if (seen.lines < 40) problems.push(`${at}: only ${seen.lines} lines of text`);
      backgrounds.add(`${colorScheme} ${seen.background}`);
      for (const [figure, value] of Object.entries(expected.figures)) {
        if (seen.figures[figure] !== String(value)) problems.push(`${at}: ${figure} is ${seen.figures[figure]}, not ${value}`);
      }
      for (const key of ['time', 'verdict', 'problems', 'exporters']) {
        const [found, wanted] = [seen[key], expected[key]].map((value) => JSON.stringify(value));
        if (found !== wanted) problems.push(`${at}: ${key} is ${found}, not ${wanted}`);
      }
      await page.screenshot({ path: join(directory, `${name}-${width}-${colorScheme}.png`), fullPage: true });
      await page.close();
    }
  }
} finally {
  await context.close();
  // A browser process may still be writing.
  rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 200 });
}
if (backgrounds.size !== 2) problems.push(`light and dark look the same: ${[...backgrounds]}`);
if (problems.length > 0) {
  console.error(problems.slice(0, 40).join('\n'));
  process.exit(1);
}
console.log(JSON.stringify(seen.plots));

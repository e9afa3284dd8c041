//! Frame of a page: style, header and footer around the content.

use super::super::answer::source;
use super::words::{count, moment};
use crate::platform;
use ic_coppice_interface::text::duration;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");
const ICON: &str = include_str!("icon.svg");

/// Returns a figure with its value as a data attribute.
pub fn figure(name: &str, value: u64, shown: &str) -> Markup {
    html! { data data-figure=(name) value=(value) { (shown) } }
}

/// Returns a figure that is a count.
pub fn counted(name: &str, value: u64) -> Markup {
    figure(name, value, &count(value))
}

/// Returns a whole page around `content`, reloaded after `refresh` seconds.
pub fn frame(title: &str, refresh: Option<u64>, content: Markup) -> Markup {
    let now = platform::time_ns();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if let Some(secs) = refresh { meta http-equiv="refresh" content=(secs); }
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body data-time=(now) {
                header {
                    div.brand { (PreEscaped(ICON)) @if refresh.is_some() { span { "Coppice" } } @else { a href="/" { "Coppice" } } }
                    p { span.id { (platform::canister_self().to_text()) } span { (moment(now)) } }
                }
                (content)
                footer {
                    p { "Answered by " (source()) ". Version " (env!("CARGO_PKG_VERSION")) "."
                        @if let Some(secs) = refresh { " Reloads every " (duration(secs)) "." } }
                    nav { a href="/metrics" { "/metrics" } " " a href="/health" { "/health" } " " a href="/logs" { "/logs" } }
                }
            }
        }
    }
}

/// Returns a table row with a name and a value.
pub fn row(name: &str, value: Markup) -> Markup {
    html! { tr { th { (name) } td { (value) } } }
}

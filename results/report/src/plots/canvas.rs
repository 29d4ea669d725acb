//! Owns drawing of shapes and text into an SVG document; the only place that knows the plotting library.
//! Never knows what a shape means.

use plotters::coord::Shift;
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::{DrawingArea, IntoDrawingArea, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle};

use super::palette::{self, Swatch};

/// A plot could not be drawn; the text is the library's reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PlotError(String);

impl PlotError {
    pub(crate) fn new(reason: impl ToString) -> Self {
        Self(reason.to_string())
    }
}

type Drawn = Result<(), PlotError>;

/// A position in pixels from the upper left corner.
pub(crate) type Pixel = (i32, i32);

/// Where a text stands relative to its position.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Align {
    Left,
    Middle,
    Right,
}

/// A surface to draw on.
pub(crate) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// Draws one SVG document of `size` pixels. `title` is read out by screen readers.
pub(crate) fn draw(
    size: (i32, i32),
    title: &str,
    paint: impl FnOnce(&Canvas<'_>) -> Drawn,
) -> Result<String, PlotError> {
    let mut document = String::new();
    {
        let pixels = (size.0.unsigned_abs(), size.1.unsigned_abs());
        let backend = SVGBackend::with_string(&mut document, pixels);
        let canvas = Canvas {
            area: backend.into_drawing_area(),
        };
        canvas.rectangle((0, 0), size, palette::BACKGROUND, 1.0)?;
        paint(&canvas)?;
        canvas.area.present().map_err(PlotError::new)?;
    }
    let label = format!("<svg role=\"img\" aria-label=\"{title}\"");
    Ok(document.replacen("<svg", &label, 1))
}

impl Canvas<'_> {
    /// A filled rectangle.
    pub(crate) fn rectangle(&self, from: Pixel, to: Pixel, swatch: Swatch, opacity: f64) -> Drawn {
        let style = color(swatch).mix(opacity).filled();
        self.area
            .draw(&Rectangle::new([from, to], style))
            .map_err(PlotError::new)
    }

    /// A rectangle of which only the border is drawn.
    pub(crate) fn outline(&self, from: Pixel, to: Pixel, swatch: Swatch) -> Drawn {
        self.area
            .draw(&Rectangle::new([from, to], color(swatch).stroke_width(1)))
            .map_err(PlotError::new)
    }

    /// A line through all points.
    pub(crate) fn path(&self, points: Vec<Pixel>, swatch: Swatch, width: u32) -> Drawn {
        let style: ShapeStyle = color(swatch).stroke_width(width);
        self.area
            .draw(&PathElement::new(points, style))
            .map_err(PlotError::new)
    }

    /// A filled dot.
    pub(crate) fn dot(&self, at: Pixel, radius: u32, swatch: Swatch, opacity: f64) -> Drawn {
        let style = color(swatch).mix(opacity).filled();
        self.area
            .draw(&Circle::new(at, radius, style))
            .map_err(PlotError::new)
    }

    /// A filled polygon.
    pub(crate) fn polygon(&self, corners: Vec<Pixel>, swatch: Swatch, opacity: f64) -> Drawn {
        let style = color(swatch).mix(opacity).filled();
        self.area
            .draw(&Polygon::new(corners, style))
            .map_err(PlotError::new)
    }

    /// A line of text, vertically centred on its position.
    pub(crate) fn text(
        &self,
        at: Pixel,
        text: &str,
        size: i32,
        swatch: Swatch,
        align: Align,
    ) -> Drawn {
        let horizontal = match align {
            Align::Left => HPos::Left,
            Align::Middle => HPos::Center,
            Align::Right => HPos::Right,
        };
        // The SVG backend divides sizes by 1.24.
        let font = ("sans-serif", f64::from(size) * 1.24).into_font();
        let ink = color(swatch);
        let style = TextStyle::from(font)
            .color(&ink)
            .pos(Pos::new(horizontal, VPos::Center));
        self.area
            .draw(&Text::new(text.to_owned(), at, style))
            .map_err(PlotError::new)
    }
}

fn color(swatch: Swatch) -> RGBColor {
    let [_, red, green, blue] = swatch.light.to_be_bytes();
    RGBColor(red, green, blue)
}

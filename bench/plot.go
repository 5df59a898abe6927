package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// plot is a diagram of some curves. Axes that are not logarithmic begin at 0.
type plot struct {
	title, x, y string
	logX, logY  bool
	curves      []curve
}

type curve struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// Sizes of a plot in pixels: the whole, and the margins around the diagram.
const (
	plotWidth, plotHeight       = 640, 400
	marginLeft, marginRight     = 70, 20
	marginTop, marginBottom     = 40, 50
	innerWidth, innerHeight     = plotWidth - marginLeft - marginRight, plotHeight - marginTop - marginBottom
	legendLine, letter, tickLen = 16, 12, 4
)

// axis maps values to 0 … 1.
type axis struct {
	log    bool
	lo, hi float64
}

func axisOf(log bool, values []float64) axis {
	a := axis{log: log, lo: math.Inf(1), hi: math.Inf(-1)}
	for _, v := range values {
		a.lo, a.hi = min(a.lo, v), max(a.hi, v)
	}
	if len(values) == 0 {
		return axis{hi: 1}
	}
	if log {
		a.lo, a.hi = math.Pow(10, math.Floor(math.Log10(a.lo))), math.Pow(10, math.Ceil(math.Log10(a.hi)))
		return a
	}
	step := a.step()
	a.lo, a.hi = 0, math.Ceil(a.hi/step)*step
	return a
}

// step is the distance of ticks: 1, 2 or 5 times a power of ten.
func (a axis) step() float64 {
	raw := max(a.hi, 1e-9) / 6
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, f := range []float64{1, 2, 5} {
		if raw <= f*power {
			return f * power
		}
	}
	return 10 * power
}

func (a axis) at(v float64) float64 {
	if a.log {
		return math.Log(v/a.lo) / math.Log(a.hi/a.lo)
	}
	return (v - a.lo) / (a.hi - a.lo)
}

func (a axis) ticks() (all []float64) {
	if a.log {
		for v := a.lo; v <= a.hi*1.001; v *= 10 {
			all = append(all, v)
		}
		return all
	}
	step := a.step()
	for i := 0; float64(i)*step <= a.hi*1.001; i++ {
		all = append(all, float64(i)*step)
	}
	return all
}

// svg draws the plot.
func (p plot) svg() string {
	var xs, ys []float64
	for _, c := range p.curves {
		for _, pt := range c.points {
			xs, ys = append(xs, pt.x), append(ys, pt.y)
		}
	}
	ax, ay := axisOf(p.logX, xs), axisOf(p.logY, ys)
	px := func(v float64) float64 { return marginLeft + innerWidth*ax.at(v) }
	py := func(v float64) float64 { return marginTop + innerHeight*(1-ay.at(v)) }
	var b strings.Builder
	text := func(x, y float64, anchor, s string) {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, html.EscapeString(s))
	}
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"%d\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", plotWidth, plotHeight, letter)
	text(plotWidth/2, marginTop/2, "middle", p.title)
	text(marginLeft+innerWidth/2, plotHeight-letter, "middle", p.x)
	text(marginLeft-tickLen, marginTop-letter, "end", p.y)
	for _, v := range ax.ticks() {
		fmt.Fprintf(&b, "<path d=\"M%.1f %d V%d\" stroke=\"#ddd\"/>\n", px(v), marginTop, marginTop+innerHeight)
		text(px(v), marginTop+innerHeight+legendLine, "middle", short(v))
	}
	for _, v := range ay.ticks() {
		fmt.Fprintf(&b, "<path d=\"M%d %.1f H%d\" stroke=\"#ddd\"/>\n", marginLeft, py(v), marginLeft+innerWidth)
		text(marginLeft-tickLen, py(v)+tickLen, "end", short(v))
	}
	colours := []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd"}
	for i, c := range p.curves {
		colour := colours[i%len(colours)]
		var path []string
		for _, pt := range c.points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", px(pt.x), py(pt.y)))
		}
		fmt.Fprintf(&b, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", strings.Join(path, " "), colour)
		y := float64(marginTop + legendLine*(i+1))
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%.1f\" width=\"10\" height=\"10\" fill=\"%s\"/>\n", marginLeft+letter, y-10, colour)
		text(marginLeft+2*letter+tickLen, y, "start", c.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// short writes a number of an axis.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}

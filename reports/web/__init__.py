"""Scripts and styles that all pages share: common.js and common.css, and uPlot as its authors publish it (ci/vendor-uplot puts it here)."""

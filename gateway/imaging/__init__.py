"""Where pixels are touched: probe, verify, normalise, resize. The only room that imports Pillow."""

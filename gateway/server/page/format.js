// Numbers, times and the gateway's own words, as a person reads them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const count = (number) => whole.format(number);
export const ratio = (number) => number.toFixed(3);
export const times = (size) => size.replace("x", "\u00a0×\u00a0");
export const clock = (time) => clockFormat.format(time);

export function percent(share) {
  if (share > 0 && share < 0.01) return "< 1 %";
  return `${share < 1 ? Math.min(99, Math.round(share * 100)) : Math.round(share * 100)} %`;
}

export function bytes(number) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  const step = number < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(number) / 10));
  return `${short.format(number / 1024 ** step)} ${units[step]}`;
}

export function seconds(number) {
  if (number < 1) return `${Math.round(number * 1000)} ms`;
  return `${number < 10 ? Number(number.toFixed(1)) : Math.round(number)} s`;
}

const megapixels = (number) => `${short.format(number / 1e6)} MP`;

const RESOURCES = {
  kv_blocks: ["KV cache blocks", count],
  sequences: ["Answers at once", count],
  encoder_tokens: ["Vision encoder tokens", count],
  preprocess_pixels: ["Pictures being prepared", megapixels],
  prefill_tokens: ["Tokens before their first answer", count],
  image_prefill_tokens: ["The same, behind pictures", count],
  seats: ["Requests inside", count],
  body_bytes: ["Request bodies", bytes],
  decode_bytes: ["Decoding images", bytes],
};

export const resourceName = (resource) => RESOURCES[resource]?.[0] ?? resource;
export const amount = (resource, number) => (RESOURCES[resource]?.[1] ?? count)(number);

const WHYS = {
  model_maximum: "the model sees no more than this",
  encoder_budget: "larger ones exceed the encoder's budget",
  context: "larger ones exceed the context",
  preset: "a preset asks for it",
  max_tokens_per_image: "max_tokens_per_image asks for it",
  max_tokens_per_request: "max_tokens_per_request asks for it",
  pressure: "the engine is under pressure",
  orientation: "turned upright",
  alpha: "laid on white",
  mode: "brought to 8-bit colour",
  frames: "first frame only",
  trailing_bytes: "bytes behind the picture dropped",
  too_small: "brought to the model's least size",
  format: "in a format that the model server reads",
};

export const reasons = (words) => words.map((word) => WHYS[word] ?? word).join("; ");

const SOURCES = {
  setting: "by the settings",
  folder: "by the model's folder",
  server_folder: "by the folder that the server loads",
  cache: "by its files in the Hugging Face cache",
  hub: "by its files on the hub",
  root: "by what the server loads",
  name: "by its name",
  calibration: "by what its server counts",
  assumed: "not known: its images are priced by bounds",
};

export const familySource = (source) => SOURCES[source] ?? source;

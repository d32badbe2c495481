/**
 * Writes that are known to change nothing: `<resourceVersion> <fingerprint>` by target. The target is an object's uid,
 * followed by `/status` or `/metadata` for these writes. This is an optimisation: a missing entry costs one request
 * without effect.
 */
export type Settled = Readonly<Record<string, string>>

/** The API server has no apply patch in JSON (Kubernetes 1.36): it reads the JSON as YAML. */
export const APPLY_TYPE = 'application/apply-patch+yaml'

/** YAML takes some of these characters for line breaks, and refuses the others. JSON may have all of them in a string. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are the subject
const NOT_IN_YAML = /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g
/** As JSON.stringify() writes half of a surrogate pair. */
const LONE_SURROGATE = /\\ud[89a-f][0-9a-f]{2}/

/** The body of a request. */
export const payloadOf = (body: unknown, contentType: string | undefined): string =>
  contentType === APPLY_TYPE ? jsonAsYaml(body) : JSON.stringify(body)

function jsonAsYaml(body: unknown): string {
  const json = JSON.stringify(body)
  const wellFormed = LONE_SURROGATE.test(json) ? JSON.stringify(body, asWellFormed) : json
  return wellFormed.replace(NOT_IN_YAML, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** As the API server reads half of a pair in JSON. */
const asWellFormed = (_: string, value: unknown): unknown => (typeof value === 'string' ? value.toWellFormed() : value)

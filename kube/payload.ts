/**
 * The media type of server-side apply. The API server has none in JSON (Kubernetes 1.36), and parses the JSON as YAML.
 */
export const APPLY_TYPE = 'application/apply-patch+yaml'

/** YAML takes some of these characters for line breaks, and refuses the others. JSON may have all of them in a string. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are the subject
const NOT_IN_YAML = /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g
/** The form in which JSON.stringify() writes half of a surrogate pair. */
const LONE_SURROGATE = /\\ud[89a-f][0-9a-f]{2}/
/** YAML limits an implicit key to 1,024 characters. JSON writes one character as six at most. */
const LONGEST_KEY = 160

/** Returns the body of a request. */
export const payloadOf = (body: unknown, contentType: string | undefined): string =>
  contentType === APPLY_TYPE ? jsonAsYaml(body) : JSON.stringify(body)

function jsonAsYaml(body: unknown): string {
  const json = JSON.stringify(body)
  const isOdd = LONE_SURROGATE.test(json) || (json.length > LONGEST_KEY && hasLongKey(body))
  const yaml = isOdd ? withMarkedKeys(JSON.parse(json)) : json
  return yaml.replace(NOT_IN_YAML, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

const hasLongKey = (value: unknown): boolean =>
  typeof value === 'object' &&
  value !== null &&
  Object.entries(value).some(([key, inner]) => key.length > LONGEST_KEY || hasLongKey(inner))

/**
 * Writes each key after a question mark, where YAML does not limit its length. Half of a surrogate pair is replaced, as
 * the API server does when it reads JSON.
 */
function withMarkedKeys(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.toWellFormed())
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map(withMarkedKeys).join()}]`
  const fields = Object.entries(value).map(
    ([key, inner]) => `? ${JSON.stringify(key.toWellFormed())} : ${withMarkedKeys(inner)}`,
  )
  return `{${fields.join()}}`
}

import type { AppliedObject, KubeObject, Outcome, RunInput } from '#contracts'
import { scrubber, WITHHELD } from '#reconcile'

/**
 * Returns the outcome without the values of Secrets in `apply`, and without the values of these and of the input's
 * Secrets in the effect.
 */
export function shownOutcome({ apply, effect, ...others }: Outcome, { owned, related }: RunInput): Outcome {
  const given = [owned, related].flatMap((kinds) => Object.values(kinds).flat())
  const scrub = scrubber([...given, ...(apply ?? [])].filter(isSecret))
  return {
    ...(apply && { apply: apply.map((object) => (isSecret(object) ? withoutValues(object) : object)) }),
    ...others,
    ...(effect && { effect: JSON.parse(JSON.stringify(effect), (_, value) => scrubbed(value, scrub)) }),
  }
}

const isSecret = ({ apiVersion, kind }: KubeObject): boolean => apiVersion === 'v1' && kind === 'Secret'

const scrubbed = (value: unknown, scrub: (text: string) => string): unknown =>
  typeof value === 'string' ? scrub(value) : value

const withoutValues = ({ data, stringData, ...others }: AppliedObject): AppliedObject => ({
  ...others,
  ...(data !== undefined && { data: keysOf(data) }),
  ...(stringData !== undefined && { stringData: keysOf(stringData) }),
})

const keysOf = (values: unknown): Record<string, string> =>
  Object.fromEntries(Object.keys(Object(values)).map((key) => [key, WITHHELD]))

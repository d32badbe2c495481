import type { AppliedObject, KubeObject, Outcome, RunInput } from '#contracts'
import { scrubber, WITHHELD, withoutContents } from '#reconcile'

/**
 * Returns the outcome without confidential contents in `apply`, and without the values of these and of the input's
 * confidential objects in the effect. Left out: Secrets are confidential.
 */
export function shownOutcome(
  { apply, effect, ...others }: Outcome,
  { owned, related }: RunInput,
  isConfidential: (object: KubeObject) => boolean = isSecret,
): Outcome {
  const given = [owned, related].flatMap((kinds) => Object.values(kinds).flat())
  const scrub = scrubber([...given, ...(apply ?? [])].filter(isConfidential))
  const shown = (object: AppliedObject): AppliedObject =>
    isSecret(object) ? withoutValues(object) : isConfidential(object) ? withoutContents(object) : object
  return {
    ...(apply && { apply: apply.map(shown) }),
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

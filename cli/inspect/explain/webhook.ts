import { servedVersions, validationFails } from '#install'
import { ApiError, isForbidden, type KubeClient, resourcePath } from '#kube'
import { type Finding, type Rule, step, type Target, type WebhookSituation } from './situation.ts'

const PARTIAL = 'fairlead.dev/partial'

/** Returns undefined if nothing is wrong, or if the user may not see it. */
export async function webhookOf(kube: KubeClient, target: Target): Promise<WebhookSituation | undefined> {
  const { ref } = target
  const versions = (await unlessRefused(() => servedVersions(kube, ref))) ?? []
  const shown = await Promise.all(versions.map((version) => versionOf(kube, target, version)))
  const unasked = await unlessRefused(() => validationFails(kube, ref))
  const found = { versions: shown.filter((one) => one !== undefined), ...(unasked !== undefined && { unasked }) }
  return found.versions.length === 0 && unasked === undefined ? undefined : found
}

async function versionOf(
  kube: KubeClient,
  { ref, namespace, name }: Target,
  version: string,
): Promise<WebhookSituation['versions'][number] | undefined> {
  try {
    const object = await kube.get(resourcePath({ ...ref, version }, namespace, name))
    const why = object.metadata.annotations?.[PARTIAL]
    return why === undefined ? undefined : { version, isPart: true, why }
  } catch (error) {
    const why = conversionFailure(error)
    return why === undefined ? undefined : { version, isPart: false, why }
  }
}

/** Returns what the API server says about a webhook that does not convert the object. Undefined: another error. */
export const conversionFailure = (error: unknown): string | undefined =>
  error instanceof ApiError && error.code === 500 && error.said.includes('conversion webhook') ? error.said : undefined

async function unlessRefused<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read()
  } catch (error) {
    if (!isForbidden(error)) throw error
    return undefined
  }
}

const PODS = 'kubectl -n fairlead-system get pods -l app.kubernetes.io/name=webhooks'
const LOOK = step('Look why the webhook does not answer: runs go on, clients wait for it.', PODS)

/** Reports what clients cannot do: each says so to its user, and nobody else sees it. */
export const webhook: Rule = ({ webhook: found, target }): Finding[] => [
  ...(found?.versions ?? []).map(({ version, isPart, why }): Finding => {
    if (!isPart)
      return {
        reason: 'VersionUnreadable',
        level: 'problem',
        message: `clients of ${version} cannot read it: ${why}`,
        next: LOOK,
      }
    const say = `Write it as ${target.ref.group}/${target.ref.version}, or make it smaller, as the reason says.`
    return { reason: 'ShownInPart', level: 'note', message: `${version} shows it in part: ${why}`, next: step(say) }
  }),
  ...(found?.unasked === undefined
    ? []
    : [
        {
          reason: 'ChangesRefused',
          level: 'problem' as const,
          message: `each change of its spec is refused, since the API server cannot ask the webhook: ${found.unasked}`,
          next: LOOK,
        },
      ]),
]

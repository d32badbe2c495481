import type { KubeClient } from '#kube'

/** Requests that the API server has answered so far, but for watches, of what operators work on. */
export async function requestsTo(
  kube: KubeClient,
  resource = '(?:ats|pods|memcacheds|deployments|events|reconcilers)',
  verb = '(?!WATCH)[A-Z]+',
): Promise<number> {
  const metrics = await kube.text('/metrics')
  const counted = new RegExp(
    `^apiserver_request_total\\{(?=.*\\bresource="${resource}")(?=.*\\bverb="${verb}").*\\} (\\S+)$`,
    'gm',
  )
  return [...metrics.matchAll(counted)].reduce((sum, [, count]) => sum + Number(count), 0)
}

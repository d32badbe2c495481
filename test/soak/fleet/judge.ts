import type { SeenPod } from '../../support/node-player.ts'

/** What there is when all is quiet. Times in milliseconds, by the clock of the machine. */
export interface Found {
  /** `due`: the earliest time of its pod, in whole seconds; undefined: it has none. */
  ats: readonly { name: string; due: number | undefined; phase: string | undefined }[]
  /** Each that was ever seen. `isLost`: it is gone, and the soak has not deleted it. */
  pods: readonly (Pick<SeenPod, 'owner' | 'uid' | 'createdAt'> & { isLost: boolean })[]
  memcacheds: readonly { name: string; size: number }[]
  deployments: readonly { owner: string | undefined; uid: string; replicas: number }[]
  /** UIDs of Deployments before the first fault. */
  before: readonly string[]
  /** Of edits that nothing has followed, the objects. */
  unfollowed: readonly string[]
}

/** What was lost, doubled, early or deleted. */
export function wrongIn({ ats, pods, memcacheds, deployments, before, unfollowed }: Found): string[] {
  const wrong = unfollowed.map((name) => `nothing has followed an edit of ${name}`)
  const podsOf = Map.groupBy(pods, ({ owner }) => owner)
  for (const { name, due, phase } of ats) {
    const own = podsOf.get(name) ?? []
    const wanted = due === undefined ? 0 : 1
    const early = own.find(({ createdAt }) => createdAt < (due ?? Number.POSITIVE_INFINITY))
    if (own.length !== wanted) wrong.push(`${name} has had ${own.length} pods instead of ${wanted}`)
    if (due !== undefined && early) wrong.push(`the pod of ${name} was created ${due - early.createdAt} ms early`)
    if (due !== undefined && phase !== 'DONE') wrong.push(`${name} is ${phase} instead of DONE`)
  }
  const names = new Set(ats.map(({ name }) => name))
  for (const { owner, uid, isLost } of pods) {
    if (!names.has(owner ?? '')) wrong.push(`pod ${uid} belongs to ${owner}, which is no At`)
    if (isLost) wrong.push(`pod ${uid} of ${owner} was deleted`)
  }
  const deploymentsOf = Map.groupBy(deployments, ({ owner }) => owner)
  for (const { name, size } of memcacheds) {
    const replicas = (deploymentsOf.get(name) ?? []).map((one) => one.replicas)
    if (replicas.join() !== String(size)) wrong.push(`${name} has the size ${size}, and Deployments of [${replicas}]`)
  }
  const left = new Set(deployments.map(({ uid }) => uid))
  return [...wrong, ...before.filter((uid) => !left.has(uid)).map((uid) => `Deployment ${uid} was deleted`)]
}

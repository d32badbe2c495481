import { setTimeout as sleep } from 'node:timers/promises'
import { At } from '#functions/at'
import { type KubeClient, resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import { Pod } from '#sdk'

/** Lets so many Ats be created, PENDING, due, RUNNING and DONE. */
export async function lives(kube: KubeClient, name: string, count: number): Promise<void> {
  const schedule = new Date(Date.now() + 3000).toISOString().replace(/\.\d+Z$/, 'Z')
  const path = resourcePath(At, 'default')
  await Promise.all(
    Array.from({ length: 16 }, async (_, worker) => {
      for (let at = worker; at < count; at += 16)
        await kube.create(path, At.of({ metadata: { name: `${name}-${at}` }, spec: { schedule, command: 'true' } }))
    }),
  )
  for (;;) {
    let done = 0
    for await (const { items } of kube.list(path))
      done += items.filter(
        ({ metadata, status }) =>
          metadata.name.startsWith(`${name}-`) && (status as { phase?: string } | undefined)?.phase === 'DONE',
      ).length
    if (done === count) break
    await sleep(500)
  }
  await sleep(1000)
}

/** Deletes all Ats and their pods, because a process that starts later would run each of them. */
export async function forget(kube: KubeClient): Promise<void> {
  for (const kind of [At, Pod]) {
    const path = resourcePath(kind, 'default')
    for await (const { items } of kube.list(path))
      await forEachAtMost(16, items, async ({ metadata }) => {
        await kube.delete(`${path}/${metadata.name}`, { gracePeriodSeconds: 0 })
      })
  }
}

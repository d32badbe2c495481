import { z } from 'zod'
import { ConfigMap, reconciler, resource } from '#sdk'

/** CPU time that each call of `heavy` takes. */
export const HEAVY_MS = 15

const kindOf = (kind: string, plural: string) =>
  resource({
    group: 'usage.example.com',
    version: 'v1',
    kind,
    plural,
    spec: z.object({ size: z.int32() }),
    status: z.object({ size: z.int32().optional() }),
  })

const Heavy = kindOf('Heavy', 'heavies')
const Light = kindOf('Light', 'lights')

const decide = ({ metadata: { name }, spec: { size } }: ReturnType<typeof Heavy.parse>) => ({
  apply: [ConfigMap.of({ metadata: { name }, data: { size: `${size}` } })],
  status: { size },
})

export const heavy = reconciler({
  name: 'heavy',
  for: Heavy,
  owns: [ConfigMap],
  reconcile({ object }) {
    const began = process.threadCpuUsage()
    for (let ms = 0; ms < HEAVY_MS; ) {
      const { user, system } = process.threadCpuUsage(began)
      ms = (user + system) / 1000
    }
    return decide(object)
  },
})

export const light = reconciler({
  name: 'light',
  for: Light,
  owns: [ConfigMap],
  reconcile: ({ object }) => decide(object),
})

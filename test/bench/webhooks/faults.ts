import { setTimeout as sleep } from 'node:timers/promises'
import { until } from '../../support/wait.ts'
import { AMONG, type Figures, PER_SECOND, type Scene } from './scenes.ts'
import { pathOf } from './writes.ts'

const REPLICAS = 2
/** Writes go on for so long before and after each. */
const AROUND_MS = 3000

/** What is refused, and what is wrong afterwards, at 100 writes a second in both versions. */
export async function faults(scene: Scene): Promise<Figures> {
  const { place, replicas, sites, webhook, say } = scene
  await replicas.behindService(REPLICAS)
  await sites.create(AMONG)
  const figures: Figures = { wrong: 0 }
  const during = async (name: string, happens: () => Promise<unknown>) => {
    await converts(scene)
    const { times, refused, repeated } = await sites.during(
      async () => {
        await sleep(AROUND_MS)
        await happens()
        await sleep(AROUND_MS)
      },
      { perSecond: PER_SECOND, versions: ['v1', 'v1beta1'], among: AMONG },
    )
    await converts(scene)
    const wrong = await sites.wrong(AMONG)
    figures[name] = refused.length
    figures['wrong'] = (figures['wrong'] ?? 0) + wrong.length
    const such = [...refused.slice(0, 1), ...wrong.slice(0, 1)].map((one) => `, ${one.slice(0, 300)}`).join('')
    say(`${name}: ${refused.length} of ${times.length + refused.length} refused, ${repeated} sent again${such}`)
  }
  await during('updateRefused', () => replicas.replaceAll())
  await during('killRefused', () => replicas.kill())
  await replicas.add()
  await during('rotationRefused', () => webhook.rotate())
  await during('restartRefused', () => place.restartApiServer('SIGTERM'))
  return figures
}

/** Resolves when the API server converts, after whatever has been. */
const converts = ({ place, sites }: Scene): Promise<unknown> =>
  until(() => place.kube.get(pathOf('Site', 'v1beta1', sites.names[0])))

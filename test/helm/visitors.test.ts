import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { VisitorsApp, visitors } from '#functions/visitors'
import { Deployment, type Kind, type KubeObject, type Reconciler, Secret, Service } from '#sdk'
import { deploymentsRun, simulate } from '#testing'
import { functionOf } from './charts.ts'

type Labels = Record<string, string>

/** The objects of an app, without what only the platform or operators on Helm write, and without what is drawn. */
async function appOf(one: Reconciler, spec: object): Promise<Record<string, unknown>> {
  const object = VisitorsApp.of({ metadata: { name: 'shop', namespace: 'default' }, spec })
  const world = simulate(one, { objects: [object], cluster: deploymentsRun })
  await world.runUntilIdle()
  const kinds: Kind<unknown>[] = [Secret, Service, Deployment]
  const objects = kinds.flatMap((kind) => world.list<Kind<KubeObject>>(kind as Kind<KubeObject>))
  return Object.fromEntries(
    objects.map((found) => [`${found.kind} ${found.metadata.name}`, declaredIn(structuredClone(found))]),
  )
}

function declaredIn({ metadata, spec, data, type }: KubeObject): object {
  const ofHelm = ['helm.sdk.operatorframework.io/chart', 'app.kubernetes.io/managed-by']
  const labels = Object.entries(metadata.labels ?? {}).filter(([name]) => !ofHelm.includes(name))
  const template = (spec as { template?: { metadata: { annotations?: Labels } } } | undefined)?.template
  // The function marks pods with their credentials, so that these restart when the credentials change.
  if (template !== undefined) delete template.metadata.annotations
  const passwords = JSON.stringify(data ?? {}, (key, value: string) => {
    if (key === '' || key === 'username') return value
    return atob(value).replaceAll(/[A-Za-z0-9]{32}/g, 'drawn')
  })
  return { labels: Object.fromEntries(labels), spec, type, data: JSON.parse(passwords) as object }
}

describe('the VisitorsApp as a chart', async () => {
  const watch = { group: 'example.com', kind: 'VisitorsApp', chart: join(import.meta.dirname, 'visitors') }
  const chart = await functionOf({}, watch)

  it.each([
    {},
    { size: 3, title: 'Our visitors' },
    { service: { type: 'NodePort', backendNodePort: 30_685, frontendNodePort: 30_686 } },
    { backend: { image: 'registry/backend:2' }, database: { image: 'mysql:8.4' } },
  ])('is the application that the function makes, with %j', async (spec) => {
    const made = await appOf(chart, spec)
    expect(Object.keys(made).length).toBe(7)
    expect(made).toEqual(await appOf(visitors, spec))
  })
})

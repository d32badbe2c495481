import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { VisitorsApp, visitors } from '#functions/visitors'
import { Deployment, type Kind, type ObservedBy, Secret, Service } from '#sdk'
import { deploymentsRun, simulate } from '#testing'

const book = parseAllDocuments(readFileSync(new URL('./book.yaml', import.meta.url), 'utf8')).map((one) => one.toJS())
const ofBook = <K extends Kind<unknown>>(kind: K): ObservedBy<K>[] => book.filter((one) => one.kind === kind.kind)

describe('a VisitorsApp, compared with the plain manifests of the book,', async () => {
  const service = { type: 'NodePort', backendNodePort: 30_685, frontendNodePort: 30_686 } as const
  const object = VisitorsApp.of({ metadata: { name: 'ex', namespace: 'default' }, spec: { service } })
  const world = simulate(visitors, { objects: [object], cluster: deploymentsRun })
  await world.runUntilIdle()
  const tierOf = (labels: Record<string, string> = {}) => labels['tier']
  const deployments = world.list(Deployment)
  const services = world.list(Service)
  const ours = <T extends { metadata: { labels?: Record<string, string> } }>(objects: T[], tier?: string): T =>
    objects.find(({ metadata }) => tierOf(metadata.labels) === tier)!

  it.each(ofBook(Deployment).map((one) => [one.metadata.name, one] as const))('runs the same as %s', (_, theirs) => {
    const { replicas, selector, template } = theirs.spec!
    const own = ours(deployments, tierOf(template.metadata!.labels)).spec!
    expect(own.replicas).toBe(replicas)
    expect(own.selector.matchLabels).toMatchObject(selector.matchLabels!)
    expect(own.template.metadata?.labels).toMatchObject(template.metadata!.labels!)
    const [container, theirContainer] = [own, theirs.spec!].map((spec) => spec.template.spec!.containers[0]!)
    expect(container!.image).toBe(theirContainer!.image)
    expect(container!.ports?.map((port) => port.containerPort)).toEqual(
      theirContainer!.ports!.map((port) => port.containerPort),
    )
    expect(container!.env?.map(({ name }) => name)).toEqual(
      expect.arrayContaining(theirContainer!.env!.map(({ name }) => name)),
    )
  })

  it.each(ofBook(Service).map((one) => [one.metadata.name, one] as const))('is reached as by %s', (_, theirs) => {
    const { ports, selector, ...how } = theirs.spec!
    const own = ours(services, tierOf(theirs.metadata.labels)).spec!
    expect(own).toMatchObject({
      ...how,
      ports: ports!.map(({ port, nodePort }) => ({ port, ...(nodePort && { nodePort }) })),
    })
    expect(own.selector).toMatchObject(selector!)
  })

  it('has a Secret with the same keys', () => {
    const [theirs] = ofBook(Secret)
    const keys = Object.keys(theirs!['stringData'] as object)
    expect(Object.keys(world.list(Secret)[0]?.data ?? {})).toEqual(expect.arrayContaining(keys))
  })

  it('has what they have not: probes, and selectors that match its own pods only', () => {
    for (const { spec } of deployments) {
      expect(spec?.template.spec?.containers[0]).toMatchObject({ readinessProbe: {}, livenessProbe: {} })
      expect(spec?.template.metadata?.labels).toMatchObject({ visitorssite_cr: 'ex' })
    }
    for (const { spec } of services) expect(spec?.selector).toMatchObject({ visitorssite_cr: 'ex' })
  })
})

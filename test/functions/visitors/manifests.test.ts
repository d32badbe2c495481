import { describe, expect, it } from 'vitest'
import { VisitorsApp, visitors } from '#functions/visitors'
import { Deployment, Secret, Service } from '#sdk'
import { deploymentsRun, simulate } from '#testing'

/** The plain manifests of the book (chapter 5), by tier: what they run, with what it is told, and where it is reached. */
const BOOK = {
  mysql: {
    image: 'mysql:5.7',
    port: 3306,
    env: ['MYSQL_ROOT_PASSWORD', 'MYSQL_DATABASE', 'MYSQL_USER', 'MYSQL_PASSWORD'],
    service: { clusterIP: 'None', port: 3306 },
  },
  backend: {
    image: 'jdob/visitors-service:1.0.0',
    port: 8000,
    env: ['MYSQL_DATABASE', 'MYSQL_SERVICE_HOST', 'MYSQL_USERNAME', 'MYSQL_PASSWORD'],
    service: { type: 'NodePort', port: 8000, nodePort: 30_685 },
  },
  frontend: {
    image: 'jdob/visitors-webui:1.0.0',
    port: 3000,
    env: ['REACT_APP_TITLE'],
    service: { type: 'NodePort', port: 3000, nodePort: 30_686 },
  },
}

describe('a VisitorsApp, compared with the plain manifests of the book,', async () => {
  const service = { type: 'NodePort', backendNodePort: 30_685, frontendNodePort: 30_686 } as const
  const object = VisitorsApp.of({ metadata: { name: 'ex', namespace: 'default' }, spec: { service } })
  const world = simulate(visitors, { objects: [object], cluster: deploymentsRun })
  await world.settle()
  const ofTier = <T extends { metadata: { labels?: Record<string, string> } }>(objects: T[], tier: string) =>
    objects.find(({ metadata }) => metadata.labels?.['tier'] === tier)!

  it.each(Object.entries(BOOK))('runs the same %s, told no less, reached in the same way', (tier, book) => {
    const { template, selector } = ofTier(world.list(Deployment), tier).spec!
    const [container] = template.spec!.containers
    expect(container).toMatchObject({ image: book.image, ports: [{ containerPort: book.port, protocol: 'TCP' }] })
    expect(container?.env?.map(({ name }) => name)).toEqual(expect.arrayContaining(book.env))
    const { port, nodePort, ...kind } = { nodePort: undefined, ...book.service }
    const { spec } = ofTier(world.list(Service), tier)
    expect(spec).toMatchObject({ ...kind, ports: [{ port, ...(nodePort && { nodePort }) }] })
    expect(spec?.selector).toEqual(selector.matchLabels)
    expect(template.metadata?.labels).toMatchObject({ app: 'visitors', tier })
  })

  it('has a Secret with the same keys', () => {
    expect(Object.keys(world.list(Secret)[0]?.data ?? {})).toEqual(expect.arrayContaining(['username', 'password']))
  })

  it('has probes, which they have not', () => {
    for (const { spec } of world.list(Deployment))
      expect(spec?.template.spec?.containers[0]).toMatchObject({ readinessProbe: {}, livenessProbe: {} })
  })
})

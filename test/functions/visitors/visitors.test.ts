import { describe, expect, it } from 'vitest'
import { VisitorsApp, visitors } from '#functions/visitors'
import { Deployment, Job, PersistentVolumeClaim, Secret, Service } from '#sdk'
import { lawsOf, type Simulation, simulate } from '#testing'
import { app, cleanUp, end, playCluster, type Spec, scenario } from './scenario.ts'

const running = (spec: Spec = {}, name = 'ex') =>
  simulate(visitors, { objects: [app(name, spec)], cluster: playCluster })

const namesOf = (world: Simulation, kind: typeof Deployment | typeof Service | typeof Secret) =>
  (world.list(kind) as { metadata: { name: string } }[]).map(({ metadata }) => metadata.name).sort()
const statusOf = ({ object }: Simulation) => VisitorsApp.parse(object!).status
const deployment = (world: Simulation, tier: string) =>
  world.list(Deployment).find(({ metadata }) => metadata.name === `ex-${tier}`)!
const containerOf = (world: Simulation, tier: string) => deployment(world, tier).spec!.template.spec!.containers[0]!
const envOf = (world: Simulation, tier: string) =>
  Object.fromEntries(containerOf(world, tier).env!.map(({ name, value, valueFrom }) => [name, value ?? valueFrom]))
const secretOf = (world: Simulation) => {
  const data = Object.entries(world.list(Secret)[0]?.data ?? {})
  return Object.fromEntries(data.map(([key, value]) => [key, Buffer.from(value, 'base64').toString()]))
}

describe('a VisitorsApp', () => {
  it('starts database, backend and front end in order, each when the one before is ready', async () => {
    const world = simulate(visitors, { objects: [app('ex')] })
    const ready = { status: { replicas: 1, updatedReplicas: 1, readyReplicas: 1, observedGeneration: 1 } }
    const seen: [string, string[]][] = []
    for (const tier of ['mysql', 'backend', 'frontend']) {
      await world.runUntilIdle()
      seen.push([statusOf(world).phase!, namesOf(world, Deployment)])
      world.patch(Deployment, ready, `ex-${tier}`)
    }
    await world.runUntilIdle()
    expect(seen).toEqual([
      ['Database', ['ex-mysql']],
      ['Backend', ['ex-backend', 'ex-mysql']],
      ['Frontend', ['ex-backend', 'ex-frontend', 'ex-mysql']],
    ])
    expect(statusOf(world)).toMatchObject({ phase: 'Ready', conditions: [{ type: 'Ready', status: 'True' }] })
  })

  it('keeps what has been started when the database is not ready for a while, and says so', async () => {
    const world = simulate(visitors, { objects: [app('ex')] })
    const status = { replicas: 1, updatedReplicas: 1, readyReplicas: 1, observedGeneration: 1 }
    for (let round = 0; round < 3; round++) {
      await world.runUntilIdle()
      world.patch(Deployment, { status })
    }
    world.patch(Deployment, { status: { readyReplicas: 0 } }, 'ex-mysql')
    await world.runUntilIdle()
    expect(namesOf(world, Deployment)).toEqual(['ex-backend', 'ex-frontend', 'ex-mysql'])
    expect(statusOf(world)).toMatchObject({
      phase: 'Database',
      conditions: [
        { status: 'False', reason: 'WaitsForDatabase', message: expect.stringContaining('database 0 of 1') },
      ],
    })
  })

  it('tells images, readiness and endpoints', async () => {
    const world = running({ size: 2 })
    await world.runUntilIdle()
    expect(statusOf(world)).toMatchObject({
      databaseImage: 'mysql:5.7',
      backendImage: 'jdob/visitors-service:1.0.0',
      frontendImage: 'jdob/visitors-webui:1.0.0',
      readyReplicas: { database: 1, backend: 2, frontend: 1 },
      endpoints: {
        frontend: 'http://ex-frontend-service.default:3000',
        backend: 'http://ex-backend-service.default:8000',
      },
    })
  })

  it('rolls out a change of title, size and images', async () => {
    const world = running()
    await world.runUntilIdle()
    world.edit({ spec: { size: 3, title: 'Other', backend: { image: 'b:2' }, frontend: { image: 'f:2' } } })
    await world.runUntilIdle()
    expect(deployment(world, 'backend').spec?.replicas).toBe(3)
    expect(envOf(world, 'frontend')).toMatchObject({ REACT_APP_TITLE: 'Other' })
    expect(statusOf(world)).toMatchObject({ backendImage: 'b:2', frontendImage: 'f:2' })
  })

  it('has services inside of the cluster, and ports of nodes only where they are asked for', async () => {
    const world = running()
    await world.runUntilIdle()
    expect(world.list(Service).map(({ spec }) => spec?.type ?? spec?.clusterIP)).toEqual([
      'None',
      'ClusterIP',
      'ClusterIP',
    ])
    expect(envOf(world, 'frontend')).toMatchObject({
      REACT_APP_BACKEND_HOST: 'ex-backend-service.default',
      REACT_APP_BACKEND_PORT: '8000',
    })
    world.edit({ spec: { service: { type: 'NodePort', frontendNodePort: 30_686 } } })
    await world.runUntilIdle()
    expect(envOf(world, 'frontend')).toEqual({ REACT_APP_TITLE: 'Visitors Dashboard', REACT_APP_BACKEND_PORT: '31000' })
    expect(statusOf(world).endpoints).toEqual({
      frontend: 'port 30686 of every node',
      backend: 'port 31000 of every node',
    })
  })

  it('keeps its visits in a volume if one is asked for, and keeps the volume when the spec forgets it', async () => {
    const world = running({ database: { storage: { size: '1Gi' } } })
    await world.runUntilIdle()
    expect(world.list(PersistentVolumeClaim)).toMatchObject([{ metadata: { name: 'ex-mysql-data' } }])
    expect(containerOf(world, 'mysql').volumeMounts).toContainEqual({ name: 'data', mountPath: '/var/lib/mysql' })
    world.edit({ spec: { database: { storage: null } } })
    await world.runUntilIdle()
    expect(world.list(PersistentVolumeClaim)).toHaveLength(1)
  })

  it.each(['a'.repeat(253), '1.app', 'x'.repeat(60)])('has names that the API server takes, for %s', async (name) => {
    const world = running({}, name)
    await world.runUntilIdle()
    for (const service of namesOf(world, Service)) expect(service).toMatch(/^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$/)
    for (const one of namesOf(world, Deployment)) expect(one.length).toBeLessThanOrEqual(242)
  })
})

describe('the credentials of a VisitorsApp', () => {
  it('are drawn for each app and stored once', async () => {
    const world = running()
    await world.runUntilIdle()
    const { username, password, ...others } = secretOf(world)
    expect(username).toBe('visitors')
    expect(password).toMatch(/^[A-Za-z0-9]{32}$/)
    expect(others['root-password']).not.toBe(password)
    expect(others['users.sql']).toBe(`ALTER USER IF EXISTS 'visitors'@'%' IDENTIFIED BY '${password}';\n`)
    for (const one of world.list(Deployment)) expect(JSON.stringify(one)).not.toContain(password)
  })

  it('are made anew when the Secret is deleted', async () => {
    const world = running()
    await world.runUntilIdle()
    world.delete(Secret)
    await world.runUntilIdle()
    expect(secretOf(world)['password']).toMatch(/^[A-Za-z0-9]{32}$/)
  })

  it('may be changed by hand: the new password is set in the database, and everybody starts with it', async () => {
    const world = running()
    await world.runUntilIdle()
    const before = deployment(world, 'backend').spec?.template.metadata?.annotations
    world.patch(Secret, { data: { password: Buffer.from('chosenByHand1').toString('base64') } })
    await world.runUntilIdle()
    expect(secretOf(world)['users.sql']).toContain("IDENTIFIED BY 'chosenByHand1'")
    expect(deployment(world, 'backend').spec?.template.metadata?.annotations).not.toEqual(before)
    world.patch(Secret, { data: { password: Buffer.from(`'; drop`).toString('base64') } })
    await world.runUntilIdle()
    expect(secretOf(world)['password']).toMatch(/^[A-Za-z0-9]{32}$/)
  })
})

describe('two VisitorsApps in a namespace', () => {
  it('share nothing, and one goes without the other', async () => {
    const one = running({}, 'one')
    await one.runUntilIdle()
    const two = running({}, 'two')
    await two.runUntilIdle()
    for (const kind of [Deployment, Service, Secret])
      expect(namesOf(one, kind).filter((name) => namesOf(two, kind).includes(name))).toEqual([])
    const selectors = (world: Simulation) => world.list(Service).map(({ spec }) => JSON.stringify(spec?.selector))
    expect(selectors(one).filter((selector) => selectors(two).includes(selector))).toEqual([])
    expect(hostOfDatabase(one)).toBe('one-mysql-service')
  })

  const hostOfDatabase = (world: Simulation) =>
    world
      .list(Deployment)
      .find(({ metadata }) => metadata.name.endsWith('-backend'))
      ?.spec?.template.spec?.containers[0]?.env?.find(({ name }) => name === 'MYSQL_SERVICE_HOST')?.value
})

describe('what somebody changes or deletes of a VisitorsApp', () => {
  it.each([
    ['a Secret', Secret, 'ex-mysql-auth'],
    ['the database', Deployment, 'ex-mysql'],
    ['the backend', Deployment, 'ex-backend'],
    ['the front end', Deployment, 'ex-frontend'],
    ['a Service', Service, 'ex-backend-service'],
  ] as const)('is put back: %s', async (_, kind, name) => {
    const world = running()
    await world.runUntilIdle()
    world.delete(kind, name)
    await world.runUntilIdle()
    expect(namesOf(world, kind)).toContain(name)
  })

  it('is put back: replicas, images, environment, selectors', async () => {
    const world = running()
    await world.runUntilIdle()
    const before = deployment(world, 'backend').spec
    world.patch(
      Deployment,
      { spec: { replicas: 2, template: { spec: { containers: [{ name: 'x', image: 'y' }] } } } },
      'ex-backend',
    )
    world.patch(Service, { spec: { selector: { tier: 'other' } } }, 'ex-backend-service')
    await world.runUntilIdle()
    expect(deployment(world, 'backend').spec).toEqual(before)
    expect(world.list(Service).map(({ spec }) => spec?.selector?.['tier'])).toEqual(['mysql', 'backend', 'frontend'])
  })
})

describe('a VisitorsApp that is deleted', () => {
  it('goes at once where there is nothing to clean up', async () => {
    const world = running()
    await world.runUntilIdle()
    world.delete()
    await world.runUntilIdle()
    expect(world.memory.all()).toEqual([])
  })

  it.each(['Complete', 'Failed'])(
    'waits for its clean-up, while all else still runs, until that is %s',
    async (type) => {
      const world = running({ cleanUp })
      await world.runUntilIdle()
      const before = namesOf(world, Deployment)
      world.delete()
      await world.runUntilIdle()
      expect(world.list(Job)).toMatchObject([
        { metadata: { name: 'ex-clean-up' }, spec: { activeDeadlineSeconds: 300 } },
      ])
      expect(namesOf(world, Deployment)).toEqual(before)
      world.patch(Job, end(type))
      await world.runUntilIdle()
      expect(world.object).toBe(undefined)
      expect(world.events).toMatchObject(type === 'Failed' ? [{ type: 'Warning', reason: 'CleanUpFailed' }] : [])
    },
  )
})

describe('whatever happens to a VisitorsApp', () => {
  it.each(lawsOf(visitors, scenario))('%s', (_, holds) => holds())
})

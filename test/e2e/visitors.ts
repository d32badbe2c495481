import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { isDeepStrictEqual } from 'node:util'
import type { RunningOperators } from 'fairlead/testing/cluster'
import { beforeAll, expect, it } from 'vitest'
import { VisitorsApp } from '#functions/visitors'
import { cacheDir } from '#lab'
import { Deployment, PersistentVolumeClaim, Secret, Service } from '#sdk'
import { addVisitorsImages } from '../../deploy/images/visitors/index.ts'
import { NODE_IP } from '../../packages/lab/node/options.ts'
import { startBrowser, whyNoBrowser } from '../support/browser.ts'
import type { Kubectl } from '../support/kubectl.ts'
import type { Scene } from './on-node.test.ts'
import { until } from './world.ts'

const BOOK = fileURLToPath(new URL('../functions/visitors/book.yaml', import.meta.url))
const CLIENT_IP = '10.9.8.7'
const BOOK_PAGE = `http://${NODE_IP}:30686/`

interface Visit {
  id: number
  client_ip: string
  service_ip: string
  timestamp: string
}

export function visitorsOnNode(scene: () => Scene): void {
  let operators: RunningOperators
  let kubectl: Kubectl

  beforeAll(async () => {
    ;({ operators, kubectl } = scene())
    await addVisitorsImages(operators.cluster!.registryUrl!, cacheDir(process.env))
    // Before any app, which may get one of its node ports otherwise.
    await kubectl(['create', 'namespace', 'book'])
    await kubectl(['apply', '-n', 'book', '-f', BOOK])
  })

  const app = (name: string, spec: object) =>
    operators.create(
      VisitorsApp,
      VisitorsApp.of({ metadata: { name }, spec: { service: { type: 'NodePort' }, ...spec } }),
    )
  const ready = (name: string, holds: (spec: string) => boolean = () => true) =>
    operators.until(VisitorsApp, name, (found) => {
      const condition = found?.status.conditions?.find(({ type }) => type === 'Ready')
      const isCurrent = condition?.observedGeneration === found?.metadata.generation
      return isCurrent && found?.status.phase === 'Ready' && holds(JSON.stringify(found.spec))
    })
  const portOf = async (service: string) => (await operators.get(Service, service))?.spec?.ports?.[0]?.nodePort
  const pageOf = async (name: string) => `http://${NODE_IP}:${await portOf(`${name}-frontend-service`)}/`
  const page = async (name: string) => (await fetchOnceOpen(await pageOf(name))).text()
  const open = async (name: string) => visit(await pageOf(name))

  /** Does what the script of the page does when the page is opened. */
  async function visit(pageUrl: string): Promise<Visit[]> {
    const [, port] = /data-port="(\d+)"/.exec(await (await fetchOnceOpen(pageUrl)).text()) ?? []
    const url = `http://${NODE_IP}:${port}/visitors/`
    const posted = await fetchOnceOpen(url, { method: 'POST', headers: { 'x-forwarded-for': `${CLIENT_IP}, 1.1.1.1` } })
    if (posted.status !== 200) throw new Error(await posted.text())
    return (await (await fetchOnceOpen(url)).json()) as Visit[]
  }

  it('show a page with its title, and each visit arrives, in order of time', async () => {
    await kubectl(['apply', '-f', '-'], {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name: 'visits' },
      spec: {
        capacity: { storage: '1Gi' },
        accessModes: ['ReadWriteOnce'],
        persistentVolumeReclaimPolicy: 'Retain',
        claimRef: { namespace: 'default', name: 'one-mysql-data' },
        hostPath: { path: join(operators.cluster!.dir, 'visits'), type: 'DirectoryOrCreate' },
      },
    })
    const storage = { size: '1Gi', storageClassName: '' }
    await app('one', {
      title: 'One & only',
      database: { storage },
      cleanUp: { image: 'busybox', command: ['sh', '-c', 'test -n "$MYSQL_PASSWORD"'] },
    })
    await app('two', { title: 'Two' })
    await ready('one')
    expect(await page('one')).toContain('<h2>One &amp; only</h2>')
    expect(await open('one')).toMatchObject([{ id: 1, client_ip: CLIENT_IP }])
    expect((await open('one')).map(({ id }) => id)).toEqual([2, 1])
  })

  it('show in a browser what the plain manifests of the book show: visits, as they arrive', async ({ skip }) => {
    skip(whyNoBrowser() !== undefined, `The page is not opened in a browser: ${whyNoBrowser()}`)
    await using browser = await startBrowser()
    for (const [url, title] of [
      [BOOK_PAGE, 'Visitors Dashboard'],
      [await pageOf('one'), 'One & only'],
    ] as const) {
      await until(async () => (await visit(url)).length > 0)
      await browser.page.goto(url)
      const texts = (selector: string) =>
        browser.page.evaluate<string[]>(`[...document.querySelectorAll('${selector}')].map((one) => one.textContent)`)
      const latestOnPage = async () => await texts('tbody tr:first-child td')
      await until(async () => isDeepStrictEqual(await texts('h2'), [title]))
      expect(await texts('th')).toEqual(['Service IP', 'Client IP', 'Timestamp'])
      await until(async () => ![CLIENT_IP, undefined].includes((await latestOnPage())[1]))
      const rows = (await texts('tbody tr')).length
      const [arrived] = await visit(url)
      const { service_ip, client_ip, timestamp } = arrived!
      await until(async () => isDeepStrictEqual(await latestOnPage(), [service_ip, client_ip, timestamp]))
      expect(await texts('tbody tr')).toHaveLength(rows + 1)
    }
  })

  it('are two in one namespace, each with visits of its own', async () => {
    await ready('two')
    expect(await open('two')).toMatchObject([{ id: 1 }])
    expect(await operators.list(Secret)).toHaveLength(2)
  })

  it('roll out another title and size', async () => {
    await operators.patch(VisitorsApp, 'one', { spec: { title: 'Changed', size: 2 } })
    const { status } = (await ready('one', (spec) => spec.includes('Changed')))!
    expect(status.readyReplicas).toEqual({ database: 1, backend: 2, frontend: 1 })
    await until(async () => (await page('one')).includes('<h2>Changed</h2>'))
  })

  it('heal a lost Secret: another password, the same visits', async () => {
    const before = (await operators.get(Secret, 'one-mysql-auth'))?.data?.['password']
    await operators.delete(Secret, 'one-mysql-auth')
    const after = await operators.until(Secret, 'one-mysql-auth', (found) => found !== undefined)
    expect(after?.data?.['password']).not.toBe(before)
    await until(async () => {
      const status = await kubectl([
        'rollout',
        'status',
        'deploy/one-mysql',
        'deploy/one-backend',
        '--timeout=240s',
      ]).catch(() => '')
      return status !== '' && (await open('one').catch(() => [])).length >= 3
    })
  })

  it('go one by one, after their clean-up, with all that they have; the other one stays', async () => {
    await operators.delete(VisitorsApp, 'one')
    await operators.until(VisitorsApp, 'one', (found) => found === undefined)
    for (const name of ['one-mysql', 'one-backend', 'one-frontend'])
      await operators.until(Deployment, name, (found) => found === undefined)
    await operators.until(PersistentVolumeClaim, 'one-mysql-data', (found) => found === undefined)
    const events = await kubectl([
      'get',
      'events',
      '--field-selector=reason=Completed',
      '-o',
      'jsonpath={.items[*].involvedObject.name}',
    ])
    expect(events).toContain('one-clean-up')
    expect((await open('two')).map(({ id }) => id)).toEqual([2, 1])
  })

  /** kube-proxy opens a node port a little after the pods behind it are ready: a refused connection is asked again. */
  async function fetchOnceOpen(url: string, init?: RequestInit): Promise<Response> {
    for (;;) {
      try {
        return await fetch(url, init)
      } catch (error) {
        const { code } = ((error as Error).cause ?? {}) as { code?: string }
        if (code !== 'ECONNREFUSED') throw error
        await sleep(50)
      }
    }
  }
}

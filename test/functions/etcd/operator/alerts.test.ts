import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { parse } from 'yaml'
import { TestEtcd } from '../../../support/etcd.ts'
import { promtool } from '../../../support/go-program.ts'
import { until } from '../../../support/wait.ts'

interface Rule {
  alert: string
  expr: string
  annotations: { runbook: string }
}

const path = (name: string) => fileURLToPath(new URL(`../../../../${name}`, import.meta.url))
const read = (name: string) => readFile(path(name), 'utf8')
const rules = async () =>
  (parse(await read('deploy/monitoring/etcd-alerts.yaml')) as { groups: { rules: Rule[] }[] }).groups.flatMap(
    (group) => group.rules,
  )

it('the alerts on members fire when they should, and not before', { timeout: 900_000 }, async () => {
  const { stdout } = await promisify(execFile)(await promtool(), [
    'test',
    'rules',
    path('test/functions/etcd/operator/alerts.yaml'),
  ])
  expect(stdout).toContain('SUCCESS')
})

it('each alert is tried, and has a row in the README', async () => {
  const [tests, page] = await Promise.all([
    read('test/functions/etcd/operator/alerts.yaml'),
    read('functions/etcd/README.md'),
  ])
  for (const { alert, annotations } of await rules()) {
    expect(tests).toMatch(new RegExp(`alertname: ${alert}\\n +exp_alerts:\\n +- exp_labels`))
    expect(page).toContain(`| \`${alert}\` |`)
    expect(annotations.runbook).toBe('functions/etcd/README.md#alerts')
  }
})

it('they ask for metrics that a real member has', async () => {
  await using etcd = await TestEtcd.open()
  await etcd.start('a')
  const metrics = await until(() => fetch(`${etcd.clientUrl('a')}/metrics`).then((answer) => answer.text()), {
    what: 'the member shows its metrics',
  })
  const exported = new Set([...metrics.matchAll(/^(etcd_\w+)/gm)].map(([, name]) => name))
  const asked = (await rules()).flatMap(({ expr }) => expr.match(/\betcd_[a-z_]*_[a-z]\w*/g) ?? [])
  const names = asked.filter((name) => name !== 'etcd_cluster')
  expect(names.length).toBeGreaterThan(4)
  expect(names.filter((name) => !exported.has(name))).toEqual([])
})

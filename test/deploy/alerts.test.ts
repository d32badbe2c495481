import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { parse, stringify } from 'yaml'
import { webhookCertificateGauge, webhookMetrics } from '../../cli/commands/admit.ts'
import { Fleet, type FleetDeps } from '../../cli/process/fleet.ts'
import { certificateGauge, createMetrics, depthGauges, storageGauges } from '../../cli/process/metrics.ts'
import { bridgeGauges } from '../../cli/process/run-metrics.ts'
import { usageMetrics } from '../../cli/process/usage.ts'
import { promtool as promtoolProgram } from '../support/go-program.ts'

interface Rule {
  alert: string
  record?: string
  expr: string
  annotations: { summary: string; runbook: string }
}
interface Panel {
  title: string
  targets?: { expr: string }[]
  panels?: Panel[]
}

const path = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url))
const read = (name: string) => readFile(path(name), 'utf8')
const rules = (parse(await read('deploy/monitoring/alerts.yaml')) as { groups: { rules: Rule[] }[] }).groups.flatMap(
  (group) => group.rules,
)
const alerts = rules.filter(({ record }) => record === undefined)
const { panels } = JSON.parse(await read('deploy/monitoring/dashboard.json')) as { panels: Panel[] }
const queries = panels.flatMap((panel) => (panel.targets ?? []).map(({ expr }) => ({ title: panel.title, expr })))

let promtool: (...args: string[]) => Promise<{ stdout: string; stderr: string }>
beforeAll(async () => {
  const program = await promtoolProgram()
  promtool = (...args) => promisify(execFile)(program, args)
}, 900_000)

/** Every name that one of our processes exports. */
async function exportedNames(): Promise<Set<string>> {
  const { registry } = createMetrics()
  const nothing = async () => ({}) as never
  bridgeGauges(registry, () => undefined)
  certificateGauge(registry, undefined)
  webhookCertificateGauge(registry, () => new Date())
  webhookMetrics(registry)
  usageMetrics(registry, { totals: () => [] })
  storageGauges(registry, [], nothing, 1)
  depthGauges(registry, { reconcilers: async () => [], depth: nothing, backlog: nothing }, { count: nothing })
  const ofClusters = await new Fleet({ slots: 1 } as FleetDeps).metrics.metrics()
  return new Set([
    ...[...ofClusters.matchAll(/^# TYPE (\S+)/gm)].map(([, name = '']) => name),
    ...registry
      .getMetricsAsArray()
      .flatMap(({ name, type }) =>
        String(type) === 'histogram' ? ['_bucket', '_sum', '_count'].map((end) => name + end) : [name],
      ),
  ])
}

const namesIn = (expr: string): string[] =>
  expr.replaceAll(/\{[^}]*\}|\[[^\]]*\]|(?:by|on|without) \([^)]*\)/g, '').match(/\b[a-z]\w*_\w+(?!\w*\()/g) ?? []

describe('the alerts', () => {
  it('fire when they should, and not before', async () => {
    const { stdout } = await promtool('test', 'rules', path('test/deploy/alerts.yaml'))
    expect(stdout).toContain('SUCCESS')
  })

  it('are each tried', async () => {
    const tests = await read('test/deploy/alerts.yaml')
    const isTried = ({ alert }: Rule) => new RegExp(`alertname: ${alert}\\n +exp_alerts:\\n +- exp_labels`).test(tests)
    expect(alerts.filter((rule) => !isTried(rule))).toEqual([])
  })

  it('have each a place in the page for operators', async () => {
    const page = await read('docs/queue/alerts.md')
    for (const { alert, annotations } of alerts) {
      expect(page).toMatch(new RegExp(`^### ${alert}$`, 'm'))
      expect(annotations.runbook).toBe(`docs/queue/alerts.md#${alert.toLowerCase()}`)
    }
  })
})

describe('alerts and dashboard', () => {
  it.each([...rules.map(({ alert, record, expr }) => ({ title: record ?? alert, expr })), ...queries])(
    '$title asks only for what is exported',
    async ({ expr }) => {
      const functions = new Set(['histogram_quantile', 'label_values'])
      const exported = await exportedNames()
      const asked = namesIn(expr).filter((name) => !functions.has(name))
      expect(asked.length).toBeGreaterThan(0)
      expect(asked.filter((name) => !exported.has(name))).toEqual([])
    },
  )

  it('are all understood by Prometheus', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'fl-rules-'))
    const recorded = queries.map(({ expr }, index) => ({
      record: `panel:${index}`,
      expr: expr.replaceAll('$__rate_interval', '5m').replaceAll('$controller', '.*').replaceAll('$cluster', '.*'),
    }))
    await writeFile(join(dir, 'rules.yaml'), stringify({ groups: [{ name: 'dashboard', rules: recorded }] }))
    const { stdout } = await promtool('check', 'rules', path('deploy/monitoring/alerts.yaml'), join(dir, 'rules.yaml'))
    expect(stdout).toContain(`SUCCESS: ${queries.length} rules found`)
    await rm(dir, { recursive: true })
  })
})

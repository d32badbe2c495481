import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import manifest from '../package.json' with { type: 'json' }

const read = (path: string): string => readFileSync(join(import.meta.dirname, '..', path), 'utf8')

interface Workflow {
  permissions?: Record<string, string>
  jobs: Record<
    string,
    { permissions?: Record<string, string>; steps: { run?: string; with?: Record<string, unknown> }[] }
  >
}
const workflow = (name: string): Workflow => parse(read(`.github/workflows/${name}.yaml`)) as Workflow
const stepsOf = ({ jobs }: Workflow) => Object.values(jobs).flatMap(({ steps }) => steps)

describe('the workflows', () => {
  it('run what .ci/run runs, and may write nothing', () => {
    const ci = workflow('ci')
    expect(stepsOf(ci).some(({ run }) => run?.endsWith(' .ci/run') === true)).toBe(true)
    expect(ci.permissions).toEqual({ contents: 'read' })
  })

  it('publish with an identity for the provenance, and without a stored token', () => {
    const release = workflow('release')
    expect(Object.values(release.jobs).map(({ permissions }) => permissions)).toEqual([
      { contents: 'write', 'id-token': 'write' },
    ])
    expect(stepsOf(release).map(({ run }) => run)).toContain(
      'npm run release -- publish --registry ${{ vars.REGISTRY }}',
    )
    expect(read('.github/workflows/release.yaml')).not.toContain('secrets.')
  })

  it('use the Go version that the servers need', () => {
    const [needed] = /^go (\d+\.\d+)/m.exec(read('packages/lab/go/k8s/go.mod'))?.slice(1) ?? []
    expect(stepsOf(workflow('ci')).map((step) => step.with?.['go-version'])).toContain(needed)
  })
})

it('.nvmrc names the Node.js that the scripts run on', () =>
  expect(read('.nvmrc').trim()).toBe(manifest.devDependencies.node.split('.')[0]))

import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { rm, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { ensureBinaries, silentProgress } from '#lab'
import { shortTempDir } from '../support/servers.ts'

const ROOT = join(import.meta.dirname, '../..')

it('the kustomization of docs/clusters.md has agents in place of bridges and dispatchers', async () => {
  const page = readFileSync(join(ROOT, 'docs/clusters.md'), 'utf8')
  const [, yaml = ''] = /```yaml\n(apiVersion: kustomize[^`]*)```/.exec(page) ?? []
  const kubectl = (await ensureBinaries(['kubectl'], silentProgress))('kubectl')
  const dir = await shortTempDir()
  const there = relative(dir, join(ROOT, 'deploy'))
  await writeFile(join(dir, 'kustomization.yaml'), yaml.replace('RELATIVE-PATH-OR-GIT-URL/deploy', there))
  const { stdout } = await promisify(execFile)(kubectl, ['kustomize', dir])
  await rm(dir, { recursive: true })
  const objects = parseAllDocuments(stdout).map((document) => document.toJS())
  expect(objects.map(({ kind, metadata }) => `${kind} ${metadata.name}`)).toEqual([
    'Deployment fairlead-bridge',
    'PodDisruptionBudget fairlead-bridge',
  ])
  const { serviceAccountName, containers } = objects[0].spec.template.spec
  const [{ args, env }] = containers
  expect({ serviceAccountName, command: args[0] }).toEqual({ serviceAccountName: 'fairlead', command: 'agent' })
  const value = (name: string) => env.filter((one: { name: string }) => one.name === name)
  expect(value('FAIRLEAD_PREFIX')).toEqual([{ name: 'FAIRLEAD_PREFIX', value: 'east' }])
  expect(value('NATS_URL')).toHaveLength(1)
})

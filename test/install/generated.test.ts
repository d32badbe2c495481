import { execFile } from 'node:child_process'
import { cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')

const generate = (root: string, ...args: string[]) =>
  promisify(execFile)(process.execPath, ['cli/install/generate.ts', ...args], { cwd: root })

/** A copy of what generates the manifests, to spoil. */
async function copyOfTheRepository(): Promise<{ root: string } & AsyncDisposable> {
  const root = await mkdtemp(join(tmpdir(), 'fl-generate-'))
  const rooms = ['core', 'kube', 'streams', 'functions', 'sdk', 'cli']
  const parts = ['package.json', 'crds', 'deploy', ...rooms]
  for (const part of parts) await cp(join(ROOT, part), join(root, part), { recursive: true })
  await symlink(join(ROOT, 'node_modules'), join(root, 'node_modules'))
  return { root, [Symbol.asyncDispose]: () => rm(root, { recursive: true }) }
}

describe('the generated manifests', () => {
  it('are what the code says', async () => {
    await expect(generate(ROOT, '--check')).resolves.toBeDefined()
  })

  it('are checked by name, whatever is wrong with them, and made right again', async () => {
    await using copy = await copyOfTheRepository()
    await writeFile(join(copy.root, 'crds/fairlead.dev_reconcilers.yaml'), 'changed by hand')
    await writeFile(join(copy.root, 'crds/left-over.yaml'), 'kind: Nothing')
    await rm(join(copy.root, 'functions/at/reconciler.yaml'))

    await expect(generate(copy.root, '--check')).rejects.toMatchObject({
      code: 1,
      stderr: [
        'crds/fairlead.dev_reconcilers.yaml is stale: run npm run generate',
        'functions/at/reconciler.yaml is stale: run npm run generate',
        'crds/left-over.yaml is stale: run npm run generate',
        '',
      ].join('\n'),
    })
    await generate(copy.root)
    await expect(generate(copy.root, '--check')).resolves.toBeDefined()
    await expect(generate(copy.root)).resolves.toMatchObject({ stdout: 'all generated files are fresh\n' })
  })
})

import { execFile } from 'node:child_process'
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { gunzipSync } from 'node:zlib'
import { afterAll, expect, it } from 'vitest'
import { helmFunctions, readChart } from '#helm'
import { outcomeOf } from '#testing'
import { openLayout } from '../../packages/image/base.ts'
import template from '../../packages/scaffold/templates/helm/_package.json' with { type: 'json' }
import { command } from '../support/command.ts'
import { smallBase, writeLayout, writeProject } from '../support/images.ts'
import { helm, projectOf, WEB, web } from './charts.ts'

const dir = await mkdtemp(join(tmpdir(), 'fl-helm-image-'))
afterAll(() => rm(dir, { recursive: true, force: true }))

interface Part {
  digest: string
}

/** Unpacks the layers of the image for one architecture, as a runtime does. */
async function unpack(archive: string, architecture: string): Promise<string> {
  const layout = await openLayout(archive)
  const json = async <T>(part: Part) => JSON.parse((await layout.read(part as never)).toString()) as T
  const { manifests } = JSON.parse(layout.root.bytes.toString()) as {
    manifests: (Part & { platform: { architecture: string } })[]
  }
  const one = manifests.find(({ platform }) => platform.architecture === architecture)
  const { layers } = await json<{ layers: (Part & { mediaType: string })[] }>(one as Part)
  const root = join(dir, architecture)
  await mkdir(root)
  for (const layer of layers) {
    const bytes = await layout.read(layer as never)
    await writeFile(join(dir, 'layer.tar'), layer.mediaType.endsWith('gzip') ? gunzipSync(bytes) : bytes)
    await promisify(execFile)('tar', ['-xf', join(dir, 'layer.tar'), '-C', root])
  }
  return root
}

it('the image of a project has its charts whole, watches.yaml and the program of Helm for each architecture', async () => {
  const chart = {
    ...WEB,
    '.helmignore': '*.bak\n',
    'values.schema.json': '{"type": "object"}\n',
    'charts/sub/Chart.yaml': 'apiVersion: v2\nname: sub\nversion: 0.1.0\n',
    'charts/sub/templates/_helpers.tpl': '{{ define "sub" }}{{ end }}',
    'templates/tests/ready.yaml': '{{ if .Values.ready }}{{ end }}',
  }
  const made = await projectOf(chart)
  const project = await writeProject(join(dir, 'project'))
  for (const one of await readdir(made)) await cp(join(made, one), join(project, one), { recursive: true })
  for (const architecture of ['amd64', 'arm64']) {
    await writeFile(join(project, `helm-${architecture}`), `the program for ${architecture}`)
    await chmod(join(project, `helm-${architecture}`), 0o755)
  }
  const [archive, base] = [join(dir, 'image.tar'), await writeLayout(join(dir, 'base'), await smallBase())]
  // What `npm run image` of a new project calls, in the folder of the project.
  const [fairlead, image, ...args] = template.scripts.image.replace('--add ', `--add ${project}/`).split(' ')
  expect([fairlead, image]).toEqual(['fairlead', 'image'])
  const { code, stderr } = await command(['image', project, '--output', archive, '--base', base, ...args])
  expect({ code, stderr }).toMatchObject({ code: 0 })
  for (const architecture of ['amd64', 'arm64']) {
    const root = await unpack(archive, architecture)
    const program = join(root, 'usr/local/bin/helm')
    expect(await readFile(program, 'utf8')).toBe(`the program for ${architecture}`)
    expect((await stat(program)).mode & 0o111).toBe(0o111)
    const { digest } = await readChart(join(root, 'app/helm-charts/web'))
    expect(digest).toBe((await readChart(join(project, 'helm-charts/web'))).digest)
    for (const one of await helmFunctions(join(root, 'app/watches.yaml'), { helm })) {
      const { apply = [] } = await outcomeOf(one, { object: web() })
      expect(apply.map(({ kind }) => kind).sort()).toEqual(['ConfigMap', 'Deployment'])
    }
  }
})

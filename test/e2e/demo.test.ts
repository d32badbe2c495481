import type { ChildProcess } from 'node:child_process'
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  apiServerBinaries,
  cacheDir,
  controlPlaneBinaries,
  defaultClusterDir,
  ensureBinaries,
  nodeBinaries,
  silentProgress,
  stopCluster,
} from '#lab'
import { tracesOfNodes } from '../lab/node-traces.ts'
import { fairlead } from '../support/fairlead.ts'
import { kubectlFor } from '../support/kubectl.ts'
import { takeTurnWithNode } from '../support/node.ts'
import { demos, folderOfPrograms, PRETENDED } from './demo-process.ts'
import { at, until, untilPhase } from './world.ts'

/** The further programs of the demo with a node. */
const NODE = [...controlPlaneBinaries.filter((name) => !apiServerBinaries.includes(name)), ...nodeBinaries]

const turn = await takeTurnWithNode()
afterAll(turn.end)
const { start, shows, left } = demos()

it.runIf(turn.skip)('the demo shows the life of an At without a real node, too, and says why', async () => {
  // Whoever has the node of this machine may end in the meantime.
  expect(await shows([`(YAY|${PRETENDED})`])).toMatch(/^(No real pod is shown: .*\.|✓ node, .*)$/m)
})

describe.skipIf(turn.skip)('the demo', () => {
  let before: Awaited<ReturnType<typeof tracesOfNodes>>
  beforeAll(async () => {
    before = await tracesOfNodes()
  })

  async function nothingLeft(): Promise<void> {
    const folders = async () => (await left()).filter((name) => name.startsWith('fl-'))
    await until(async () => expect(await folders()).toEqual([]), { leastMs: 200 })
    await until(async () => expect(await tracesOfNodes()).toEqual(before), { leastMs: 500 })
  }

  const printed = (demo: { out: string; child: ChildProcess }, what: string) =>
    until(() => demo.out.includes(what), {
      leastMs: 50,
      unless: () => {
        if (demo.child.exitCode !== null && !demo.out.includes(what))
          throw new Error(`the demo ended early: ${demo.out}`)
      },
    })

  it('begins without the node whose programs are not built, builds them, and then shows the real pod', async () => {
    const folder = await folderOfPrograms()
    const pathOf = await ensureBinaries(NODE, silentProgress)
    // Instead of compiling for minutes, this `go build -o FOLDER/` takes what is built.
    const links = NODE.map((name) => `ln -s ${pathOf(name)} "$2/${name}"`)
    const answer = '[ "$1" != env ] || { printf "go1.99.0\\nlocal\\n"; exit; }'
    const go = ['#!/bin/sh', answer, 'while [ "$1" != -o ]; do shift; done', ...links]
    await writeFile(join(folder, 'go'), `${go.join('\n')}\n`, { mode: 0o755 })
    const env = { PATH: `${folder}:${process.env['PATH']}`, FAIRLEAD_CACHE: join(folder, 'cache') }
    const err = await shows([PRETENDED, 'YAY'], [], env)
    expect(err).toContain('building from source, once: kube-controller-manager, kube-scheduler, kubelet, containerd')
    await rm(folder, { recursive: true })
    await nothingLeft()
  })

  it('leaves nothing behind when it is interrupted', async () => {
    const demo = start([])
    await printed(demo, 'timer armed')
    demo.child.kill('SIGINT')
    const [code] = await demo.exited
    expect({ code, err: demo.err }).toMatchObject({ code: 130, err: expect.not.stringContaining('    at ') })
    await nothingLeft()
  })

  it('leaves nothing running when it is killed with -9', async () => {
    const demo = start([])
    await printed(demo, 'timer armed')
    demo.child.kill('SIGKILL')
    await demo.exited
    await nothingLeft()
  })

  it('stays with --keep, says how to go on, and is stopped by the command that it names', async () => {
    const cache = await mkdtemp(join(tmpdir(), 'fl-'))
    await symlink(join(cacheDir(), 'bin'), join(cache, 'bin'))
    const env = { FAIRLEAD_CACHE: cache }
    const dir = defaultClusterDir(env)
    try {
      const { code, stdout, stderr } = await fairlead(['demo', '--keep'], env)
      expect({ code, stderr }).toMatchObject({ code: 0 })
      expect(stdout).toContain(`local down --dir ${dir}`)
      const kubectl = await kubectlFor({ kubeconfig: join(dir, 'kubeconfig') })
      expect(await kubectl(['get', 'at', 'example-at', '-o', 'jsonpath={.status.phase}'])).toBe('DONE')
      await kubectl(['create', '-f', '-'], at('by-hand', new Date()))
      await untilPhase(kubectl, 'DONE', 'by-hand')
      expect(await fairlead(['local', 'down', '--dir', dir], env)).toMatchObject({ code: 0 })
      await nothingLeft()
    } finally {
      await stopCluster(dir, { removeDir: true })
      await rm(cache, { recursive: true, force: true })
    }
  })
})

#!/usr/bin/env node
/** `npm create fairlead`: the same as `fairlead new`, in a package without dependencies. */
import './needs-node.ts'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { given, makeProject, released } from './make.ts'
import { NameError } from './names.ts'
import { TEMPLATE_FOLDERS, type TemplateName } from './project.ts'

const NAMES = Object.keys(TEMPLATE_FOLDERS).filter((name) => name !== 'existing' && name !== 'helm')
const USAGE = `npm create fairlead FOLDER -- [--template ${NAMES.join('|')}] [--kind Website] [--plural websites] [--group example.com]

A definition that exists already: npx fairlead new FOLDER --template existing --crd FILE
A Helm chart: npx fairlead new FOLDER --helm CHART
`
const text = { type: 'string' } as const

try {
  await create()
} catch (error) {
  const isUsage =
    error instanceof NameError || (error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS') === true
  if (!isUsage) throw error
  process.stderr.write(`create-fairlead: ${(error as Error).message}\n`)
  process.exitCode = 2
}

async function create(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { template: text, kind: text, plural: text, group: text, fairlead: text, help: { type: 'boolean' } },
  })
  const [folder] = positionals
  if (values.help === true || folder === undefined || positionals.length > 1) {
    process[values.help === true ? 'stdout' : 'stderr'].write(USAGE)
    process.exitCode = values.help === true ? 0 : 2
    return
  }
  const { version } = JSON.parse(readFileSync(join(import.meta.dirname, 'package.json'), 'utf8')) as {
    version: string
  }
  const { template = 'resource', fairlead: named, help: _, ...names } = values
  const fairlead = named === undefined ? released(version) : given(named)
  const userAgent = process.env['npm_config_user_agent']
  process.stdout.write(await makeProject(folder, { ...names, template: templateNamed(template), fairlead, userAgent }))
}

function templateNamed(name: string): TemplateName {
  if (NAMES.includes(name)) return name as TemplateName
  throw new NameError(`there is no template ${JSON.stringify(name)}: give one of ${NAMES.join(', ')}`)
}

/** `npm create fairlead`: what `fairlead new` does, in a package without dependencies. */
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { NameError, namesOf, projectName } from './names.ts'
import { nextSteps } from './next-steps.ts'
import { projectFiles, TEMPLATE_FOLDERS, type TemplateName } from './project.ts'
import { writeProject } from './write.ts'

const NAMES = Object.keys(TEMPLATE_FOLDERS).filter((name) => name !== 'existing')
const USAGE = `npm create fairlead FOLDER -- [--template ${NAMES.join('|')}] [--kind Website] [--plural websites] [--group example.com]

A definition that exists already: npx fairlead new FOLDER --template existing --crd FILE
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
  const template = templateNamed(values.template ?? 'resource')
  const project = projectName(resolve(folder).split(/[/\\]/).at(-1) ?? '')
  const names = namesOf({ kind: values.kind ?? 'Website', group: values.group ?? 'example.com', plural: values.plural })
  const manifest = JSON.parse(readFileSync(join(import.meta.dirname, '../package.json'), 'utf8')) as { version: string }
  const files = await projectFiles({ template, project, names, fairlead: values.fairlead ?? `^${manifest.version}` })
  await writeProject(resolve(folder), files)
  const steps = nextSteps(template, folder, process.env['npm_config_user_agent'])
  process.stdout.write(`${[...files.keys()].map((path) => `  ${join(folder, path)}\n`).join('')}\nNext:\n\n${steps}`)
}

function templateNamed(name: string): TemplateName {
  if (NAMES.includes(name)) return name as TemplateName
  throw new NameError(`there is no template ${JSON.stringify(name)}: give one of ${NAMES.join(', ')}`)
}

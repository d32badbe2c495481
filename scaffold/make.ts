import { join, resolve } from 'node:path'
import { type ExistingKind, existingFiles } from './existing.ts'
import { namesOf, projectName } from './names.ts'
import { nextSteps } from './next-steps.ts'
import { projectFiles, type TemplateName } from './project.ts'
import { writeProject } from './write.ts'

export interface MakeOptions {
  template: TemplateName
  kind?: string | undefined
  plural?: string | undefined
  group?: string | undefined
  /** The version or path that npm installs as `fairlead`. */
  fairlead: string
  /** An existing kind, whose names and types replace the other options. */
  existing?: ExistingKind | undefined
  /** `npm_config_user_agent` */
  userAgent?: string | undefined
}

/**
 * Creates a project, and returns the text for the user: its files and the next steps. Throws a NameError for a wrong
 * name.
 */
export async function makeProject(folder: string, options: MakeOptions): Promise<string> {
  const { template, kind = 'Website', group = 'example.com', plural, fairlead, existing, userAgent } = options
  const project = projectName(resolve(folder).split(/[/\\]/).at(-1) ?? '')
  const names = namesOf(existing?.names ?? { kind, group, plural })
  const files = await projectFiles({ template, project, names, fairlead })
  if (existing) for (const [path, text] of existingFiles(existing, names.singular)) files.set(path, text)
  await writeProject(resolve(folder), files)
  const paths = [...files.keys()].map((path) => `  ${join(folder, path)}\n`)
  return `${paths.join('')}\nNext:\n\n${nextSteps(template, folder, userAgent)}`
}

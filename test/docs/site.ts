import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, globSync, mkdirSync, rmSync, watch, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { sidebar, siteFiles } from './site-pages.ts'

/**
 * The documentation as a site. `npm run docs` serves it and follows changes of the pages; `npm run docs build` writes it to
 * build/site. FAIRLEAD_SOURCES is the address of the sources, such as https://HOST/fairlead/blob/main, to which links to
 * code lead; without it they are text.
 */
const SITE = join(import.meta.dirname, '../../packages/site')
const PAGES = join(SITE, 'pages')

function write(): void {
  for (const [path, text] of siteFiles(process.env['FAIRLEAD_SOURCES'])) {
    mkdirSync(dirname(join(PAGES, path)), { recursive: true })
    writeFileSync(join(PAGES, path), text)
  }
  for (const picture of globSync('docs/**/*.{svg,png}')) cpSync(picture, join(PAGES, relative('docs', picture)))
  writeFileSync(join(SITE, 'sidebar.json'), JSON.stringify(sidebar(), null, 2))
}

async function run(command: string, args: string[]): Promise<number> {
  const [code] = (await once(spawn(command, args, { cwd: SITE, stdio: 'inherit' }), 'exit')) as [number | null]
  return code ?? 1
}

rmSync(PAGES, { recursive: true, force: true })
write()
if (!existsSync(join(SITE, 'node_modules'))) process.exitCode = await run('npm', ['ci', '--no-audit', '--no-fund'])
const vitepress = join(SITE, 'node_modules/.bin/vitepress')
if ((process.exitCode ?? 0) === 0) {
  const isBuild = process.argv[2] === 'build'
  if (!isBuild) watch('docs', { recursive: true }, write)
  process.exit(await run(vitepress, isBuild ? ['build'] : ['dev']))
}

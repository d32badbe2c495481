import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }

it.each(['deploy/images/fairlead', 'packages/scaffold/templates/project'])(
  'the Dockerfile of %s starts what `fairlead image` starts, as the same user',
  (folder) => {
    const lines = readFileSync(`${folder}/Dockerfile`, 'utf8').split('\n')
    expect(lines).toContain('WORKDIR /app')
    expect(lines).toContain('USER 65532:65532')
    expect(lines.join('\n')).toMatch(/^RUN npm ci .* && rm -rf node_modules\/@kubernetes\/client-node && \\$/m)
    expect(lines).toContain('ENTRYPOINT ["node", "--max-semi-space-size=4", "/app/node_modules/fairlead/cli/bin.js"]')
  },
)

it('the Dockerfile copies the package.json of each workspace with dependencies: without it, npm ci leaves them out', () => {
  const dockerfile = readFileSync('deploy/images/fairlead/Dockerfile', 'utf8')
  const copied = manifest.workspaces.filter((folder) => dockerfile.includes(`COPY ${folder}/package.json ${folder}/\n`))
  expect(copied).toEqual(manifest.workspaces.filter((folder) => 'dependencies' in manifestIn(folder)))
})

const manifestIn = (folder: string): object => JSON.parse(readFileSync(`${folder}/package.json`, 'utf8')) as object

import test from 'node:test'
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'
import path from 'node:path'

test(
  'the type declarations compile, and reject what they should',
  { timeout: 300_000 },
  async () => {
    const require = createRequire(import.meta.url)
    const tsc = path.join(path.dirname(require.resolve('typescript/package.json')), 'bin', 'tsc')
    const project = path.join(import.meta.dirname, 'types', 'tsconfig.json')
    const output = await new Promise((resolve) => {
      execFile(process.execPath, [tsc, '-p', project], (error, stdout, stderr) => {
        resolve(error ? `${error.message}\n${stdout}${stderr}` : '')
      })
    })
    assert.equal(output, '')
  }
)

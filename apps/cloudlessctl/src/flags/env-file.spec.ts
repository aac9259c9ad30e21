import type { CreateWorkloadRequest, UpdateWorkloadRequest } from '@cloudless/api';
import { aWorkload, runCli, type CliOptions } from '../testing/run-cli.js';

const FILE = [
  '# settings of the shop',
  '',
  'COLOUR=red',
  'URL=http://db/?a=b#c',
  '  SPACED = two words ',
  'EMPTY=',
  'HOME',
  'UNSET',
  '\r',
];
const files = { 'web.env': FILE.join('\n'), 'more.env': '\uFEFFCOLOUR=blue\r\nMORE="quoted"\r\n' };

/** Returns the variables that `workload create` sends. */
async function createWith(flags: readonly string[], options: CliOptions = {}): Promise<unknown> {
  const requests: CreateWorkloadRequest[] = [];
  const coordinator = {
    createWorkload: (request: CreateWorkloadRequest) => (requests.push(request), aWorkload()),
  };
  const argv = ['workload', 'create', 'web', '--image', 'nginx:alpine', ...flags];
  expect(await runCli(argv, { coordinator, files, ...options })).toMatchObject({
    exitCode: 0,
    stderr: '',
  });
  return requests[0]?.spec?.env;
}

describe('flag --env-file', () => {
  it('sets a variable for each line, and takes the value of a bare name from the environment of the caller', async () => {
    const env = await createWith(['--env-file', 'web.env'], { env: { HOME: '/home/ada' } });
    expect(env).toEqual({
      COLOUR: 'red',
      URL: 'http://db/?a=b#c',
      SPACED: ' two words ',
      EMPTY: '',
      HOME: '/home/ada',
    });
  });

  it('lets later files override earlier files, and --env override all files', async () => {
    const flags = ['--env', 'COLOUR=green', '--env-file', 'web.env', '--env-file', 'more.env'];
    expect(await createWith(flags)).toMatchObject({ COLOUR: 'green', MORE: '"quoted"', EMPTY: '' });
    expect(await createWith(flags.slice(2))).toMatchObject({ COLOUR: 'blue' });
  });

  it('adds to the existing variables with workload update', async () => {
    const requests: UpdateWorkloadRequest[] = [];
    const coordinator = {
      getWorkload: () => aWorkload({ spec: { command: ['a'], env: { OLD: '1', COLOUR: 'pink' } } }),
      updateWorkload: (request: UpdateWorkloadRequest) => (requests.push(request), aWorkload()),
    };
    const argv = ['workload', 'update', 'web', '--env-file', 'more.env', '--env', 'OLD-'];
    expect(await runCli(argv, { coordinator, files })).toMatchObject({ exitCode: 0, stderr: '' });
    expect(requests[0]?.updateMask?.paths).toEqual(['env']);
    expect(requests[0]?.spec?.env).toEqual({ COLOUR: 'blue', MORE: '"quoted"' });
  });

  it.each([
    { file: 'missing.env', says: 'missing.env: no such file or directory' },
    {
      file: 'wrong.env',
      text: 'A=1\n=2\n',
      says: 'wrong.env, line 2: expected NAME=VALUE, got "=2"',
    },
    {
      file: 'wrong.env',
      text: 'export A=1',
      says: 'wrong.env, line 1: expected NAME=VALUE, got "export A=1"',
    },
    { file: 'wrong.env', text: `A=${'x'.repeat(2 ** 20)}`, says: 'wrong.env: larger than 1 MiB' },
  ])('rejects a file with: $says', async ({ file, text, says }) => {
    const given = text === undefined ? {} : { [file]: text };
    const argv = ['workload', 'create', 'web', '--image', 'a', '--env-file', file];
    expect(await runCli(argv, { files: given })).toMatchObject({
      exitCode: 2,
      stderr: `cloudlessctl: --env-file: ${says}\n`,
    });
  });
});

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  CloudlessError,
  InvalidInputError,
  parseConfig,
  textField,
  wholeNumberField,
} from '@cloudless/base';
import { addSettingFlags, describeFailure, readSettingLayers, type SettingNames } from './index.js';

const names: SettingNames = {
  flags: {
    port: ['--port <number>', 'where'],
    dataDir: ['--data-dir <path>', 'the data'],
    leaseMs: ['--lease <ms>', 'how long'],
  },
  envPrefix: 'APP_',
};
const fields = {
  port: wholeNumberField(80, 0, 99),
  dataDir: textField('/default'),
  leaseMs: wholeNumberField(5, 0, 9),
};

let directory = '';
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cloudless-settings-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

async function read(
  file: string | undefined,
  env: Record<string, string>,
  options: Record<string, unknown>,
) {
  const path = join(directory, 'settings.yaml');
  if (file !== undefined) await writeFile(path, file);
  const layers = await readSettingLayers(
    names,
    file === undefined ? options : { config: path, ...options },
    env,
  );
  return parseConfig(fields, layers);
}

describe('settings', () => {
  it.each([
    { name: 'the defaults without any layer', file: undefined, env: {}, options: {}, port: 80 },
    { name: 'a file rather than the defaults', file: 'port: 1', env: {}, options: {}, port: 1 },
    {
      name: 'the environment rather than a file',
      file: 'port: 1',
      env: { APP_PORT: '2' },
      options: {},
      port: 2,
    },
    {
      name: 'flags rather than the environment and a file',
      file: 'port: 1',
      env: { APP_PORT: '2' },
      options: { port: '3' },
      port: 3,
    },
    { name: 'the defaults when the file is empty', file: '', env: {}, options: {}, port: 80 },
    { name: 'a file in JSON', file: '{"port": 4}', env: {}, options: {}, port: 4 },
  ])('are read from $name', async ({ file, env, options, port }) => {
    expect((await read(file, env, options)).port).toBe(port);
  });

  it.each([
    {
      name: 'an invalid flag',
      file: undefined,
      env: {},
      options: { dataDir: 7 },
      message: 'command line: --data-dir: must be text',
    },
    {
      name: 'an invalid variable',
      file: undefined,
      env: { APP_PORT: 'x' },
      options: {},
      message: 'environment: APP_PORT: "x" must be a whole number from 0 to 99',
    },
    {
      name: 'an unknown variable',
      file: undefined,
      env: { APP_PROT: '1' },
      options: {},
      message:
        'environment: APP_PROT: is not a setting; the settings are APP_PORT, APP_DATA_DIR, APP_LEASE',
    },
    {
      name: 'an unknown key',
      file: 'prot: 1',
      env: {},
      options: {},
      message: 'settings.yaml: prot: is not a setting; the settings are port, dataDir, lease',
    },
    {
      name: 'a duplicate key',
      file: 'port: 1\nport: 2',
      env: {},
      options: {},
      message: 'Map keys must be unique',
    },
    {
      name: 'a file with a list',
      file: '- 1',
      env: {},
      options: {},
      message: 'settings.yaml: must be a map of settings',
    },
  ])(
    'are rejected with an error that names the source of $name',
    async ({ file, env, options, message }) => {
      await expect(read(file, env, options)).rejects.toThrow(message);
    },
  );

  it('are read from a flag whose name differs from the key', async () => {
    expect((await read(undefined, {}, { lease: '7' })).leaseMs).toBe(7);
    await expect(read(undefined, {}, { lease: 'x' })).rejects.toThrow('command line: --lease: "x"');
  });

  it.each(['lease', 'leaseMs'])('are read from the key %s of a file', async (key) => {
    expect((await read(`${key}: 7`, {}, {})).leaseMs).toBe(7);
    await expect(read(`${key}: x`, {}, {})).rejects.toThrow(`settings.yaml: ${key}: "x" must be`);
  });

  it.each(['dataDir', 'data-dir'])('are read from the key %s of a file', async (key) => {
    expect((await read(`${key}: /d`, {}, {})).dataDir).toBe('/d');
  });

  it('are rejected when a file has two keys for one setting', async () => {
    await expect(read('lease: 1\nleaseMs: 2', {}, {})).rejects.toThrow(
      'settings.yaml: leaseMs: is the same setting as lease; remove one of them',
    );
  });

  it('are rejected when a file has an inherited member of objects as a key', async () => {
    await expect(read('{"__proto__": {"port": 1}}', {}, {})).rejects.toThrow('is not a setting');
  });

  it('are rejected with an error that names the file when the file is missing', async () => {
    const path = join(directory, 'none.yaml');
    await expect(readSettingLayers(names, { config: path }, {})).rejects.toThrow(
      `cannot read the settings at ${path}`,
    );
  });
});

describe('addSettingFlags', () => {
  it('adds --config and the flag of every setting', () => {
    const addedFlags: string[] = [];
    addSettingFlags({ option: (flag) => addedFlags.push(flag) }, names);
    expect(addedFlags).toEqual([
      '--config <file>',
      '--port <number>',
      '--data-dir <path>',
      '--lease <ms>',
    ]);
  });
});

describe('describeFailure', () => {
  it('returns one line for each problem, and exit code 2 only for invalid input', () => {
    const invalid = new InvalidInputError([
      { field: 'a', message: 'is wrong' },
      { field: 'b', message: 'too' },
    ]);
    expect(describeFailure('app', invalid)).toEqual({
      text: 'app: a: is wrong\napp: b: too\n',
      exitCode: 2,
    });
    expect(describeFailure('app', new CloudlessError('unavailable', 'port in use'))).toEqual({
      text: 'app: port in use\n',
      exitCode: 1,
    });
  });

  it.each([
    { message: 'no port', text: 'app: no port\n  cause: EADDRINUSE: bind\n' },
    { message: 'no port: EADDRINUSE: bind', text: 'app: no port: EADDRINUSE: bind\n' },
  ])('adds the first cause to the text "$message" unless it is there', ({ message, text }) => {
    const first = new Error('EADDRINUSE: bind');
    const cause = new CloudlessError('unavailable', 'cannot listen', { cause: first });
    const reason = new CloudlessError('invalid', message, { cause });
    expect(describeFailure('app', reason)).toEqual({ text, exitCode: 2 });
  });
});

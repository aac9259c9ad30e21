import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Writable } from 'node:stream';
import fc from 'fast-check';
import { createLog, type LogOptions } from './index.js';

const AT = Date.UTC(2026, 0, 2, 10, 20, 30, 400);

function aLog(options: Partial<LogOptions> = {}) {
  const stream = new PassThrough();
  const log = createLog({
    level: 'debug',
    format: 'json',
    component: 'coordinator',
    stream,
    wallTime: () => AT,
    ...options,
  });
  // Since Node 26, one call of read() returns one chunk.
  const text = (): string => {
    const chunks: Buffer[] = [];
    for (let chunk = stream.read() as Buffer | null; chunk !== null;) {
      chunks.push(chunk);
      chunk = stream.read() as Buffer | null;
    }
    return Buffer.concat(chunks).toString();
  };
  return {
    log,
    text,
    lines: () =>
      text()
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as Record<string, unknown>),
  };
}

describe('createLog', () => {
  it('writes the line that the README shows', () => {
    const { log, text } = aLog();
    const scoped = log.child({ component: 'rollout' }).child({ workloadId: '5f' });
    scoped.info('rollout advanced', { creates: 1 });
    expect(text()).toBe(
      '{"time":"2026-01-02T10:20:30.400Z","level":"info","message":"rollout advanced","component":"rollout","workloadId":"5f","creates":1}\n',
    );
  });

  it.each([
    {
      name: 'the field of a child log instead of the field of its parent',
      fields: { component: 'child' },
      expected: { component: 'child' },
    },
    {
      name: 'a field named message as message_',
      fields: { message: 'field' },
      expected: { message: 'done', message_: 'field' },
    },
    {
      name: 'fields named level and time as level_ and time_',
      fields: { level: 'x', time: 1 },
      expected: { level: 'info', level_: 'x', time_: 1 },
    },
    {
      name: 'an error with its name and causes',
      fields: { reason: new TypeError('outer', { cause: new Error('inner') }) },
      expected: {
        message: 'done',
        reason: { error: 'outer', errorName: 'TypeError', causes: ['Error: inner'] },
      },
    },
    { name: 'big integers as text', fields: { revision: 12n }, expected: { revision: '12' } },
    {
      name: 'no field for an undefined value',
      fields: { a: undefined, b: null },
      expected: { b: null },
    },
  ])('writes $name', ({ fields, expected }) => {
    const { log, lines } = aLog();
    log.child(fields).info('done');
    log.info('done', fields);
    for (const line of lines()) expect(line).toMatchObject(expected);
  });

  it('keeps the message when the fields are an Error', () => {
    const { log, lines } = aLog();
    const fields = new Error('glued') as unknown as Record<string, unknown>;
    log.error('commit failed', fields);
    expect(lines()).toMatchObject([{ message: 'commit failed' }]);
  });

  it('drops lines below its level', () => {
    const { log, lines } = aLog({ level: 'warn' });
    log.debug('1');
    log.info('2');
    log.warn('3');
    log.error('4');
    expect(lines().map(({ message }) => message)).toEqual(['3', '4']);
  });

  it('writes a single line of text in the pretty format', () => {
    const { log, text } = aLog({ format: 'pretty' });
    log.info('node joined', { nodeId: 'n-1', note: 'two\nlines \u001b[31m', list: [1] });
    expect(text()).toBe(
      '10:20:30.400 INFO  [coordinator] node joined nodeId=n-1 note="two\\nlines \\u001b[31m" list=[1]\n',
    );
  });

  it('writes one line of valid JSON for any fields', () => {
    const { log, text } = aLog();
    fc.assert(
      fc.property(
        fc.dictionary(
          fc.string(),
          fc.anything({ withBigInt: true, withMap: true, withSet: true, withDate: true }),
        ),
        (fields) => {
          log.info('line', fields);
          const written = text();
          expect(written.endsWith('\n')).toBe(true);
          expect(written.slice(0, -1)).not.toContain('\n');
          expect(JSON.parse(written)).toMatchObject({ message: 'line', level: 'info' });
        },
      ),
    );
  });

  it('does not throw when its stream fails', async () => {
    const broken = new Writable({
      write: (_chunk, _encoding, done) =>
        done(Object.assign(new Error('closed'), { code: 'EPIPE' })),
    });
    const log = createLog({ level: 'info', format: 'json', component: 'x', stream: broken });
    log.info('first');
    await new Promise((resolve) => broken.once('close', resolve));
    log.info('second');
    await log.close();
    log.info('after the end');
  });

  it('does not end the process when the reader of standard output has exited', async () => {
    const script = `
      import { createLog } from ${JSON.stringify(new URL('./index.ts', import.meta.url).href)};
      const log = createLog({ level: 'info', format: 'json', component: 'x' });
      log.info('ready');
      process.on('message', () => { for (let i = 0; i < 1000; i += 1) log.info('nobody reads this'); setImmediate(() => process.exit(7)); });
    `;
    const args = [
      '--import',
      'tsx',
      '--conditions=@cloudless/source',
      '--input-type=module',
      '-e',
      script,
    ];
    const child = spawn(process.execPath, args, {
      stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
      env: { PATH: process.env['PATH'] },
    });
    const { stdout } = child;
    if (stdout === null) throw new Error('no standard output');
    await once(stdout, 'data');
    stdout.destroy();
    child.send('go');
    expect(await once(child, 'exit')).toEqual([7, null]);
  }, 30_000);

  it('writes lines to a file with mode 0600 and flushes them at close', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'log-'));
    try {
      const file = join(folder, 'deep', 'log.jsonl');
      const log = createLog({
        level: 'info',
        format: 'pretty',
        component: 'agent',
        stream: null,
        file,
        wallTime: () => AT,
      });
      for (let index = 0; index < 500; index += 1) log.info('line', { index });
      await log.close();
      const indexes = readFileSync(file, 'utf8')
        .trim()
        .split('\n')
        .map((line) => (JSON.parse(line) as { index: number }).index);
      expect(indexes).toEqual(Array.from({ length: 500 }, (_, index) => index));
      expect(statSync(file).mode & 0o777).toBe(0o600);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('throws with kind precondition when its file cannot be written', () => {
    expect(() =>
      createLog({
        level: 'info',
        format: 'json',
        component: 'x',
        stream: null,
        file: '/dev/null/log',
      }),
    ).toThrow(
      expect.objectContaining({
        kind: 'precondition',
        message: expect.stringContaining('/dev/null/log'),
      }),
    );
  });
});

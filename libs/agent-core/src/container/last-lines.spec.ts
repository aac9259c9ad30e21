import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { sleep, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { RestartPolicy_Policy } from '@cloudless/api';
import type { LogLine } from '@cloudless/runtime';
import { aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

async function createTestBed(spec: Parameters<typeof aStartOrder>[0] = {}): Promise<AgentTestBed> {
  const testBed = new AgentTestBed();
  await testBed.start();
  testBed.coordinator.sendOrder(aStartOrder(spec));
  await settle();
  return testBed;
}

const idOf = (testBed: AgentTestBed) => toContainerId(testBed.requireReport().containerId);
const linesOf = (testBed: AgentTestBed) => testBed.requireReport().lastLines;

/** Writes `output` to stderr and ends the container of the replica with `exitCode`. */
async function crash(testBed: AgentTestBed, output: string, exitCode = 1): Promise<void> {
  const id = idOf(testBed);
  testBed.machine.write(id, 'stderr', output);
  testBed.machine.exit(id, exitCode);
  await settle();
}

describe('last lines of a replica', () => {
  it('are in the report of the failure, both streams in order, including an unfinished line', async () => {
    const testBed = await createTestBed();
    const id = idOf(testBed);
    const before = testBed.coordinator.reportHistory.length;
    for (let line = 1; line <= 11; line += 1)
      testBed.machine.write(id, line % 2 === 0 ? 'stderr' : 'stdout', `line ${line}\n`);
    await crash(testBed, '\u001b[31mout of luck\u001b[0m');
    const [first] = testBed.coordinator.reportHistory.slice(before);
    expect(first).toMatchObject({ restarts: 1, ready: false, lastExitCode: 1 });
    expect(first?.lastLines).toEqual(
      [3, 4, 5, 6, 7, 8, 9, 10, 11].map((line) => `line ${line}`).concat('out of luck'),
    );
  });

  it('contain only the beginning of a line that was split', async () => {
    const testBed = await createTestBed();
    await crash(testBed, `first\n${'x'.repeat(40_000)}\nlast\n`);
    expect(linesOf(testBed)).toEqual(['first', `${'x'.repeat(255)}…`, 'last']);
  });

  it('stay in the reports until the next failure, also after a successful exit', async () => {
    const testBed = await createTestBed();
    await crash(testBed, 'one\n');
    await testBed.clock.advance(100);
    expect([testBed.summarizeReport()?.ready, linesOf(testBed)]).toEqual([true, ['one']]);
    await crash(testBed, 'went well\n', 0);
    expect(linesOf(testBed)).toEqual(['one']);
    await testBed.clock.advance(200);
    await crash(testBed, '', 2);
    expect([testBed.requireReport().restarts, linesOf(testBed)]).toEqual([3, []]);
  });

  it('are those of the killed container when a liveness probe fails', async () => {
    const probe = {
      check: { case: 'http', value: { path: '/', port: 'http' } } as const,
      period: durationFromMs(1_000),
    };
    const testBed = await createTestBed({
      spec: { ports: [{ name: 'http', containerPort: 80 }], livenessProbe: probe },
    });
    testBed.machine.write(idOf(testBed), 'stdout', 'stuck\n');
    testBed.http = () => 500;
    await testBed.clock.advance(3_500);
    expect(testBed.requireReport().restarts).toBe(1);
    expect(linesOf(testBed)).toEqual(['stuck']);
  });

  it('do not delay the restart: the back-off counts from the exit', async () => {
    const testBed = await createTestBed();
    const logs = testBed.runtime.logs.bind(testBed.runtime);
    testBed.runtime.logs = async function* (...args) {
      await sleep(testBed.clock, 80);
      yield* logs(...args);
    };
    await crash(testBed, 'one\n');
    await testBed.clock.advance(80);
    expect([testBed.requireReport().restarts, testBed.requireReport().ready]).toEqual([1, false]);
    await testBed.clock.advance(20);
    expect([testBed.requireReport().ready, linesOf(testBed)]).toEqual([true, ['one']]);
  });

  it('are empty after an ordered stop', async () => {
    const testBed = await createTestBed();
    testBed.machine.write(idOf(testBed), 'stdout', 'bye\n');
    testBed.coordinator.sendOrder(aStopOrder({ preStopMs: 0 }));
    await settle();
    expect(testBed.requireReport()).toMatchObject({ lastExitCode: 143, lastLines: [] });
  });

  it('are empty after a failed start', async () => {
    const testBed = await createTestBed();
    await crash(testBed, 'one\n');
    testBed.machine.removeExecutable('server');
    await testBed.clock.advance(100);
    expect(testBed.requireReport()).toMatchObject({ restarts: 2, lastLines: [] });
  });

  it('are in the report of the final failure', async () => {
    const testBed = await createTestBed({
      spec: { restart: { policy: RestartPolicy_Policy.NEVER } },
    });
    await crash(testBed, 'no config\n', 3);
    expect([testBed.summarizeReport()?.phase, linesOf(testBed)]).toEqual(['FAILED', ['no config']]);
  });

  it('survive a restart of the agent', async () => {
    const testBed = await createTestBed();
    await crash(testBed, 'one\n');
    await testBed.clock.advance(100);
    await testBed.restart();
    expect(testBed.requireReport()).toMatchObject({ restarts: 1, ready: true, lastLines: ['one'] });
  });

  it('are read by the next agent when no agent observed the failure', async () => {
    const testBed = await createTestBed();
    const id = idOf(testBed);
    await testBed.kill();
    testBed.machine.write(id, 'stdout', 'alone\n');
    testBed.machine.exit(id, 4);
    const before = testBed.coordinator.reportHistory.length;
    await testBed.start();
    expect(testBed.coordinator.reportHistory[before]).toMatchObject({
      restarts: 1,
      lastExitCode: 4,
      lastLines: ['alone'],
    });
  });
});

describe('last lines of a log that does not end', () => {
  /** Yields one line and then blocks until the reader aborts. */
  function stuckLog(testBed: AgentTestBed): { readonly aborted: () => number } {
    let aborted = 0;
    const line: LogLine = {
      sequence: 1n,
      stream: 'stdout',
      timeMs: 0,
      text: new TextEncoder().encode('half'),
      partial: false,
    };
    testBed.runtime.logs = async function* (_id, _request, signal) {
      yield line;
      await new Promise<void>((resolve) =>
        signal.addEventListener('abort', () => resolve(), { once: true }),
      );
      aborted += 1;
    };
    return { aborted: () => aborted };
  }

  it('are reported as far as they were read within 1 s', async () => {
    const testBed = await createTestBed();
    const { aborted } = stuckLog(testBed);
    await crash(testBed, '');
    expect(testBed.requireReport()).toMatchObject({ restarts: 0 });
    await testBed.clock.advance(1_000);
    expect(testBed.requireReport()).toMatchObject({ restarts: 1, lastLines: ['half'] });
    expect(aborted()).toBe(1);
    await testBed.clock.advance(100);
    expect(testBed.summarizeReport()).toMatchObject({ ready: true, restarts: 1 });
  });

  it('do not delay a stop', async () => {
    const testBed = await createTestBed();
    stuckLog(testBed);
    await crash(testBed, '', 7);
    testBed.coordinator.sendOrder(aStopOrder({ preStopMs: 0 }));
    await settle();
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED', reason: 'exit code 7' });
    await testBed.clock.advance(10_000);
    expect(testBed.machine.startCount).toBe(1);
  });

  it('do not delay the stop of the agent', async () => {
    const testBed = await createTestBed();
    const { aborted } = stuckLog(testBed);
    await crash(testBed, '');
    await testBed.kill();
    expect(aborted()).toBe(1);
    await testBed.start();
    expect(testBed.requireReport()).toMatchObject({ restarts: 1 });
  });
});

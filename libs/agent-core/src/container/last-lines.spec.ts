import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { sleep, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { RestartPolicy_Policy } from '@cloudless/api';
import type { LogLine } from '@cloudless/runtime';
import { aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

async function aWorld(spec: Parameters<typeof aStartOrder>[0] = {}): Promise<AgentTestBed> {
  const world = new AgentTestBed();
  await world.start();
  world.coordinator.sendOrder(aStartOrder(spec));
  await settle();
  return world;
}

const idOf = (world: AgentTestBed) => toContainerId(world.requireReport().containerId);
const linesOf = (world: AgentTestBed) => world.requireReport().lastLines;

/** Writes output, exits, and lets the next container start. */
async function crash(world: AgentTestBed, output: string, exitCode = 1): Promise<void> {
  const id = idOf(world);
  world.machine.write(id, 'stderr', output);
  world.machine.exit(id, exitCode);
  await settle();
}

describe('last lines of a replica', () => {
  it('are in the report of the failure, both streams in order, including an unfinished line', async () => {
    const world = await aWorld();
    const id = idOf(world);
    const before = world.coordinator.reportHistory.length;
    for (let line = 1; line <= 11; line += 1)
      world.machine.write(id, line % 2 === 0 ? 'stderr' : 'stdout', `line ${line}\n`);
    await crash(world, '\u001b[31mout of luck\u001b[0m');
    const [first] = world.coordinator.reportHistory.slice(before);
    expect(first).toMatchObject({ restarts: 1, ready: false, lastExitCode: 1 });
    expect(first?.lastLines).toEqual(
      [3, 4, 5, 6, 7, 8, 9, 10, 11].map((line) => `line ${line}`).concat('out of luck'),
    );
  });

  it('contain only the beginning of a line that was split', async () => {
    const world = await aWorld();
    await crash(world, `first\n${'x'.repeat(40_000)}\nlast\n`);
    expect(linesOf(world)).toEqual(['first', `${'x'.repeat(255)}…`, 'last']);
  });

  it('stay until the next failure, also after successful exits', async () => {
    const world = await aWorld();
    await crash(world, 'one\n');
    await world.clock.advance(100);
    expect([world.summarizeReport()?.ready, linesOf(world)]).toEqual([true, ['one']]);
    await crash(world, 'went well\n', 0);
    expect(linesOf(world)).toEqual(['one']);
    await world.clock.advance(200);
    await crash(world, '', 2);
    expect([world.requireReport().restarts, linesOf(world)]).toEqual([3, []]);
  });

  it('are those of a container that a probe killed, whatever its exit code', async () => {
    const probe = {
      check: { case: 'http', value: { path: '/', port: 'http' } } as const,
      period: durationFromMs(1_000),
    };
    const world = await aWorld({
      spec: { ports: [{ name: 'http', containerPort: 80 }], livenessProbe: probe },
    });
    world.machine.write(idOf(world), 'stdout', 'stuck\n');
    world.http = () => 500;
    const ends = world.clock.advance(3_500);
    await ends;
    expect(world.requireReport().restarts).toBe(1);
    expect(linesOf(world)).toEqual(['stuck']);
  });

  it('do not delay the restart: the back-off counts from the exit', async () => {
    const world = await aWorld();
    const logs = world.runtime.logs.bind(world.runtime);
    world.runtime.logs = async function* (...args) {
      await sleep(world.clock, 80);
      yield* logs(...args);
    };
    await crash(world, 'one\n');
    await world.clock.advance(80);
    expect([world.requireReport().restarts, world.requireReport().ready]).toEqual([1, false]);
    await world.clock.advance(20);
    expect([world.requireReport().ready, linesOf(world)]).toEqual([true, ['one']]);
  });

  it('are empty after an ordered stop', async () => {
    const world = await aWorld();
    world.machine.write(idOf(world), 'stdout', 'bye\n');
    world.coordinator.sendOrder(aStopOrder({ preStopMs: 0 }));
    await settle();
    expect(world.requireReport()).toMatchObject({ lastExitCode: 143, lastLines: [] });
  });

  it('are empty after a failed start', async () => {
    const world = await aWorld();
    await crash(world, 'one\n');
    world.machine.removeExecutable('server');
    await world.clock.advance(100);
    expect(world.requireReport()).toMatchObject({ restarts: 2, lastLines: [] });
  });

  it('are in the report of the final failure', async () => {
    const world = await aWorld({ spec: { restart: { policy: RestartPolicy_Policy.NEVER } } });
    await crash(world, 'no config\n', 3);
    expect([world.summarizeReport()?.phase, linesOf(world)]).toEqual(['FAILED', ['no config']]);
  });

  it('survive a restart of the agent', async () => {
    const world = await aWorld();
    await crash(world, 'one\n');
    await world.clock.advance(100);
    await world.restart();
    expect(world.requireReport()).toMatchObject({ restarts: 1, ready: true, lastLines: ['one'] });
  });

  it('are read by the next agent when no agent observed the failure', async () => {
    const world = await aWorld();
    const id = idOf(world);
    await world.kill();
    world.machine.write(id, 'stdout', 'alone\n');
    world.machine.exit(id, 4);
    const before = world.coordinator.reportHistory.length;
    await world.start();
    expect(world.coordinator.reportHistory[before]).toMatchObject({
      restarts: 1,
      lastExitCode: 4,
      lastLines: ['alone'],
    });
  });
});

describe('last lines of a log that does not end', () => {
  /** Yields one line and then blocks until the reader aborts. */
  function stuckLog(world: AgentTestBed): { readonly aborted: () => number } {
    let aborted = 0;
    const line: LogLine = {
      sequence: 1n,
      stream: 'stdout',
      timeMs: 0,
      text: new TextEncoder().encode('half'),
      partial: false,
    };
    world.runtime.logs = async function* (_id, _request, signal) {
      yield line;
      await new Promise<void>((resolve) =>
        signal.addEventListener('abort', () => resolve(), { once: true }),
      );
      aborted += 1;
    };
    return { aborted: () => aborted };
  }

  it('are reported as far as they were read within 1 s', async () => {
    const world = await aWorld();
    const { aborted } = stuckLog(world);
    await crash(world, '');
    expect(world.requireReport()).toMatchObject({ restarts: 0 });
    await world.clock.advance(1_000);
    expect(world.requireReport()).toMatchObject({ restarts: 1, lastLines: ['half'] });
    expect(aborted()).toBe(1);
    await world.clock.advance(100);
    expect(world.summarizeReport()).toMatchObject({ ready: true, restarts: 1 });
  });

  it('do not delay a stop', async () => {
    const world = await aWorld();
    stuckLog(world);
    await crash(world, '', 7);
    world.coordinator.sendOrder(aStopOrder({ preStopMs: 0 }));
    await settle();
    expect(world.summarizeReport()).toMatchObject({ phase: 'STOPPED', reason: 'exit code 7' });
    await world.clock.advance(10_000);
    expect(world.machine.startCount).toBe(1);
  });

  it('do not delay the stop of the agent', async () => {
    const world = await aWorld();
    const { aborted } = stuckLog(world);
    await crash(world, '');
    await world.kill();
    expect(aborted()).toBe(1);
    await world.start();
    expect(world.requireReport()).toMatchObject({ restarts: 1 });
  });
});

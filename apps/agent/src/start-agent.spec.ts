import { CloudlessError } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { ProcessStopSignal } from '@cloudless/app-kit';
import type { AgentConfig } from './agent-config.js';
import type { EarlyProxy } from './network/early-proxy.js';
import { startAgent, type BegunAgent, type StartSteps } from './start-agent.js';

const config = { dataDir: '/data' } as AgentConfig;
/** Longer than the time limit of an aborted start, milliseconds. */
const LONG_MS = 60_000;

/** Steps of a start that succeed, and that write down what happens. */
class FakeSteps implements StartSteps {
  readonly happened: string[] = [];
  readonly clock = new ManualClock();
  begun: BegunAgent | undefined;
  outlivesFailedStart = false;
  private stop: (signal: ProcessStopSignal) => void = () => undefined;

  lockDataDirectory: StartSteps['lockDataDirectory'] = async (path) => {
    this.happened.push(`lock ${path}`);
    return { path, release: async () => void this.happened.push('release') };
  };
  untilStopped = (): Promise<ProcessStopSignal> => {
    this.happened.push('defer signals');
    return new Promise((resolve) => (this.stop = resolve));
  };
  startProxy = async (): Promise<EarlyProxy | undefined> => {
    this.happened.push('start proxy');
    const terminate = (): void => void this.happened.push('end proxy');
    const started = { terminate, hasExited: () => false, unref: () => undefined };
    return { settings: {} as never, started, outlivesFailedStart: this.outlivesFailedStart };
  };
  loadRest: StartSteps['loadRest'] = async () => {
    this.happened.push('load');
    return async (begun) => {
      this.happened.push('run');
      this.begun = begun;
      return 7;
    };
  };
  endBySignal = (signal: ProcessStopSignal): void => void this.happened.push(signal);

  async sendSignal(signal: ProcessStopSignal): Promise<void> {
    this.stop(signal);
    await this.clock.advance(0);
  }
}

const BEGIN = ['lock /data', 'defer signals', 'start proxy', 'load'];

describe('startAgent', () => {
  it('starts the proxy of the locked directory before it loads the rest of the code', async () => {
    const steps = new FakeSteps();
    expect(await startAgent(config, steps)).toBe(7);
    expect(steps.happened).toEqual([...BEGIN, 'run']);
    expect(steps.begun?.signal.aborted).toBe(false);
  });

  it('does not touch the proxy of an agent that holds the data directory', async () => {
    const steps = new FakeSteps();
    const held = new CloudlessError('precondition', 'in use by another agent');
    steps.lockDataDirectory = () => Promise.reject(held);
    await expect(startAgent(config, steps)).rejects.toBe(held);
    expect(steps.happened).toEqual([]);
  });

  it.each([
    { name: 'ends the proxy', outlives: false, end: ['end proxy', 'release'] },
    { name: 'keeps a proxy that outlives a failed start', outlives: true, end: ['release'] },
  ])('$name when the rest cannot be loaded', async ({ outlives, end }) => {
    const steps = new FakeSteps();
    steps.outlivesFailedStart = outlives;
    steps.loadRest = () => Promise.reject(new Error('no file'));
    await expect(startAgent(config, steps)).rejects.toThrow('no file');
    expect(steps.happened).toEqual([...BEGIN.slice(0, -1), ...end]);
  });

  it.each([
    { name: 'ends the proxy', outlives: false, end: ['end proxy', 'SIGTERM'] },
    { name: 'keeps a proxy that outlives a failed start', outlives: true, end: ['SIGTERM'] },
  ])('$name when the rest does not follow a stop signal', async ({ outlives, end }) => {
    const steps = new FakeSteps();
    steps.outlivesFailedStart = outlives;
    await startAgent(config, steps);
    await steps.sendSignal('SIGTERM');
    expect(steps.begun?.signal.aborted).toBe(true);
    expect(await steps.begun?.stopped).toBe('SIGTERM');
    expect(steps.happened).toEqual([...BEGIN, 'run']);
    await steps.clock.advance(LONG_MS);
    expect(steps.happened).toEqual([...BEGIN, 'run', ...end]);
  });

  it('lets an agent that runs take its time to stop', async () => {
    const steps = new FakeSteps();
    await startAgent(config, steps);
    steps.begun?.onReady();
    await steps.sendSignal('SIGINT');
    await steps.clock.advance(LONG_MS);
    expect(steps.happened).toEqual([...BEGIN, 'run']);
  });
});

import { CloudlessError } from '@cloudless/base';
import { WorkloadStop } from './workload-stop.js';

const first = new CloudlessError('unavailable', 'the agent could not stop its processes');
const second = new CloudlessError('unavailable', 'the runtimes could not be closed');

describe('WorkloadStop', () => {
  it.each([
    { name: 'a wanted stop', isWanted: true, machineStops: false, failure: first },
    { name: 'a wanted stop of a machine', isWanted: true, machineStops: true, failure: undefined },
    { name: 'no wanted stop', isWanted: false, machineStops: false, failure: undefined },
  ])('with $name throws $failure', async ({ isWanted, machineStops, failure }) => {
    const stop = new WorkloadStop(isWanted, async () => machineStops);
    const calls: unknown[] = [];
    const agent = {
      stop: (options: object) => {
        calls.push(options);
        return Promise.reject(first);
      },
    };
    const runtimes = {
      close: (stopContainers: boolean) => {
        calls.push(stopContainers);
        return Promise.reject(second);
      },
    };
    expect(stop.stopsWorkloads).toBe(isWanted);
    await expect(stop.stopAgent(agent)).rejects.toBe(first);
    expect(stop.stopsWorkloads).toBe(isWanted && failure === undefined);
    await expect(stop.closeRuntimes(runtimes, true)).rejects.toBe(second);
    expect(calls).toEqual([{ stopWorkloads: isWanted, machineStops }, isWanted]);
    if (failure === undefined) expect(() => stop.throwFailure()).not.toThrow();
    else expect(() => stop.throwFailure()).toThrow(failure);
  });

  it('stops no workload after a failed start', async () => {
    const calls: boolean[] = [];
    const close = async (stopContainers: boolean): Promise<void> => void calls.push(stopContainers);
    await new WorkloadStop(true, async () => false).closeRuntimes({ close }, false);
    expect(calls).toEqual([false]);
  });
});

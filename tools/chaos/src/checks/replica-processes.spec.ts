import { findProcessFaults } from './replica-processes.js';

const process = (pid: number, replicaId: string, workload = 'web') => ({
  pid,
  workload,
  replicaId,
});
const wanted = new Map([['web', ['web-1', 'web-2']]]);

describe('findProcessFaults', () => {
  it.each([
    {
      name: 'one process for each replica',
      processes: [process(1, 'web-1'), process(2, 'web-2'), process(3, 'other-1', 'other')],
      faults: [],
    },
    {
      name: 'a replica without a process',
      processes: [process(1, 'web-1')],
      faults: ['web: web-2 has 0 processes'],
    },
    {
      name: 'a replica with two processes',
      processes: [process(1, 'web-1'), process(2, 'web-2'), process(3, 'web-2')],
      faults: ['web: web-2 has 2 processes'],
    },
    {
      name: 'a process that a replaced replica left behind',
      processes: [process(1, 'web-1'), process(2, 'web-2'), process(3, 'web-0')],
      faults: ['web: process 3 of web-0 still runs'],
    },
  ])('compares processes with replicas: $name', ({ processes, faults }) => {
    expect(findProcessFaults(processes, wanted)).toEqual(faults);
  });
});

import { create } from '@bufbuild/protobuf';
import {
  ContainerStatus_State as State,
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
} from '@cloudless/api';
import {
  ReplicaRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { mergeReport } from '../session/merge-report.js';
import { presentContainer } from './container-presenter.js';

const workload = create(WorkloadRecordSchema, {
  uid: 'w',
  namespace: 'default',
  name: 'web',
  version: 2,
});
const version = create(VersionRecordSchema, {
  version: 1,
  template: { image: 'nginx:1', command: ['run'], args: ['-v'] },
});
const view = {
  workload: () => ({ value: workload, revision: 1n }),
  version: (_uid: string, number: number) => (number === 1 ? version : undefined),
};
const facts = {
  pid: 7,
  ip: '10.0.0.7',
  runtime: 'cri',
  runtimeId: 'cd',
  imageDigest: 'nginx@sha256:ef',
  startedAt: { seconds: 5n },
};
const assigned = create(ReplicaRecordSchema, {
  ...{
    id: 'w-1',
    uid: 'w',
    version: 1,
    nodeId: 'node-1',
    desiredRunning: true,
    phase: Phase.ASSIGNED,
  },
});
const report = create(ReplicaReportSchema, {
  ...{ replicaId: 'w-1', containerId: 'ab', phase: Phase.RUNNING, ready: true, container: facts },
  endpoints: [{ portName: 'http', ip: '10.0.0.7', port: 80 }],
});

describe('presentContainer', () => {
  it('returns what the agent reported, with image and command of the version of the replica', () => {
    const record = mergeReport(assigned, report, 1_000, /* confirmsStopLimit */ true);
    expect(presentContainer(view, record)).toMatchObject({
      ...{
        containerId: 'ab',
        replicaId: 'w-1',
        namespace: 'default',
        workload: 'web',
        nodeId: 'node-1',
      },
      ...{ state: State.RUNNING, ...facts, image: 'nginx:1', command: ['run', '-v'] },
      endpoints: [{ portName: 'http', ip: '10.0.0.7', port: 80 }],
    });
  });

  it('omits process id, IP address and endpoints of an ended container, and keeps its runtime ids', () => {
    const running = mergeReport(assigned, report, 1_000, /* confirmsStopLimit */ true);
    const ended = mergeReport(
      running,
      create(ReplicaReportSchema, { ...report, phase: Phase.FAILED, lastExitCode: 3 }),
      2_000,
      /* confirmsStopLimit */ true,
    );
    expect(presentContainer(view, ended)).toMatchObject({
      ...{
        state: State.EXITED,
        exitCode: 3,
        pid: 0,
        ip: '',
        endpoints: [],
        runtimeId: 'cd',
        imageDigest: 'nginx@sha256:ef',
      },
    });
  });
});

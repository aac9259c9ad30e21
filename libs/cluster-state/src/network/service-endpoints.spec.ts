import { create } from '@bufbuild/protobuf';
import {
  PortSchema,
  Port_Protocol as Protocol,
  ReplicaStatus_Phase as Phase,
  ServicePortSchema,
} from '@cloudless/api';
import {
  ReplicaRecordSchema,
  ServiceRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import {
  createEndpointPortIndex,
  hasEndpoint,
  isReadyEndpoint,
  matchTargetPort,
  selectsWorkload,
} from './service-endpoints.js';

const web = create(WorkloadRecordSchema, {
  namespace: 'default',
  name: 'web',
  spec: { labels: { app: 'web', tier: 'front' } },
});
const { TCP, UDP } = Protocol;
const http = create(PortSchema, { name: 'http', containerPort: 8080, protocol: TCP });
const admin = create(PortSchema, { name: 'admin', containerPort: 9000, protocol: TCP });
const dns = create(PortSchema, { name: 'dns', containerPort: 53, protocol: UDP });

describe('selectsWorkload', () => {
  it.each([
    ['a workload by its name', { workload: 'web' }, true],
    ['no workload of another name', { workload: 'api' }, false],
    ['a workload that has all labels', { selector: { app: 'web', tier: 'front' } }, true],
    ['no workload that lacks a label', { selector: { app: 'web', zone: 'a' } }, false],
    ['no workload without selector and name', {}, false],
  ])('selects %s', (_, spec, expected) => {
    const service = create(ServiceRecordSchema, { namespace: 'default', spec });
    expect(selectsWorkload(service, web)).toBe(expected);
  });

  it('selects no workload of another namespace', () => {
    const service = create(ServiceRecordSchema, { namespace: 'other', spec: { workload: 'web' } });
    expect(selectsWorkload(service, web)).toBe(false);
  });
});

describe('matchTargetPort', () => {
  it.each([
    ['a target number', { targetPort: '9000' }, [http, admin], 'admin'],
    ['a target name', { targetPort: 'http' }, [http, admin], 'http'],
    ['the same name', { name: 'admin', port: 80 }, [http, admin], 'admin'],
    ['the same number', { name: 'web', port: 8080 }, [http, admin], 'http'],
    ['the only port of the protocol', { port: 53, protocol: UDP }, [http, dns], 'dns'],
    ['no port among several', { name: 'web', port: 80 }, [http, admin], undefined],
    ['no port of another protocol', { targetPort: 'http', protocol: UDP }, [http], undefined],
  ])('finds %s', (_, port, declared, expected) => {
    expect(matchTargetPort(create(ServicePortSchema, port), declared)?.name).toBe(expected);
  });
});

describe('createEndpointPortIndex', () => {
  it('resolves the ports of a service to the addresses of a replica', () => {
    const service = create(ServiceRecordSchema, {
      spec: {
        ports: [
          { name: 'web', port: 80, targetPort: 'http' },
          { name: 'none', port: 1 },
        ],
      },
    });
    const replica = create(ReplicaRecordSchema, {
      endpoints: [
        { portName: 'admin', ip: '10.1.0.2', port: 9000 },
        { portName: 'http', ip: '10.1.0.2', port: 31000 },
      ],
    });
    expect(createEndpointPortIndex(service, [http, admin])(replica)).toEqual([
      { name: 'web', ip: '10.1.0.2', port: 31000 },
    ]);
  });
});

describe('endpoints of replicas', () => {
  const running = { nodeId: 'n1', phase: Phase.RUNNING, desiredRunning: true, ready: true };

  it.each([
    ['a ready replica', {}, true, true],
    ['a replica that is not ready', { ready: false }, true, false],
    ['a replica that leaves', { desiredRunning: false }, true, false],
    ['a stopping replica', { phase: Phase.STOPPING, desiredRunning: false }, true, false],
    ['a lost replica', { lost: true }, true, false],
    ['a stopped replica', { phase: Phase.STOPPED, ready: false }, false, false],
    ['a replica without a node', { nodeId: '', phase: Phase.PENDING, ready: false }, false, false],
  ])(
    'keeps %s as an endpoint only while its node may hold connections',
    (_, change, has, ready) => {
      const replica = create(ReplicaRecordSchema, { ...running, ...change });
      expect([hasEndpoint(replica), isReadyEndpoint(replica)]).toEqual([has, ready]);
    },
  );
});

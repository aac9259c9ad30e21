import { create } from '@bufbuild/protobuf';
import { RenewCertificateSchema, WorkloadCertificateSchema } from '@cloudless/api';
import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import type { ContainerRequest } from '@cloudless/runtime';
import { createFakeRuntime } from '@cloudless/runtime/testing';
import { MemoryWorkloadIdentityFiles } from '../testing/memory-workload-identity-files.js';
import { aForgetOrder, aStartOrder, aStopOrder, SecureAgentTestBed } from '../testing/index.js';

const HOUR_MS = 3_600_000;

/** A node with a container runtime and identities. */
class IdentityBed extends SecureAgentTestBed {
  readonly workloadFiles = new MemoryWorkloadIdentityFiles();

  constructor(capabilities = ['runtime.cri']) {
    super();
    this.runtime = createFakeRuntime({ clock: this.clock, capabilities });
    this.deniesProcesses = true;
    this.workloadIdentity = {
      files: this.workloadFiles,
      createKeyAndCsr: async () => ({ keyPem: 'key', csr: new Uint8Array([1]) }),
    };
    this.coordinator.issueWorkloadCertificate = async ({ replicaId }) => {
      const nowMs = this.clock.wallTime();
      return create(WorkloadCertificateSchema, {
        certificateChain: `chain-of-${replicaId} ${nowMs} ${nowMs + 24 * HOUR_MS}`,
        trustBundle: { generation: 1n, pem: 'roots' },
      });
    };
  }

  async order(spec: object = { image: 'a', command: [], identity: {} }): Promise<void> {
    this.coordinator.sendOrder(aStartOrder({ spec }));
    await settle();
  }

  /** Returns the request by which the container of replica `web-1` was started. */
  requestOfContainer(): ContainerRequest {
    const { containerId } = this.requireReport('web-1');
    return this.machine.requireRequest(toContainerId(containerId));
  }
}

describe('replica with an identity', () => {
  it.each([
    {
      node: 'with containers that denies processes',
      capabilities: ['runtime.cri'],
      deniesProcesses: true,
      expected: true,
    },
    {
      node: 'with containers and processes, which could read every key',
      capabilities: ['runtime.cri', 'runtime.process'],
      deniesProcesses: false,
      expected: false,
    },
    {
      node: 'that allows processes, while their runtime reports no capability',
      capabilities: ['runtime.cri'],
      deniesProcesses: false,
      expected: false,
    },
    {
      node: 'without containers that denies processes',
      capabilities: [],
      deniesProcesses: true,
      expected: false,
    },
  ])('gives a node $node the capability: $expected', async (node) => {
    const { capabilities, deniesProcesses, expected } = node;
    const bed = new IdentityBed(capabilities);
    bed.deniesProcesses = deniesProcesses;
    await bed.start();
    expect(bed.coordinator.hellos.at(-1)?.capabilities.includes('identity.workload')).toBe(
      expected,
    );
  });

  it('gives a node without identities no capability, and fails there with the missing capability', async () => {
    const bed = new IdentityBed();
    bed.workloadIdentity = undefined;
    await bed.start();
    expect(bed.coordinator.hellos.at(-1)?.capabilities).not.toContain('identity.workload');
    await bed.order();
    expect(bed.summarizeReport()?.reason).toContain(
      'spec.identity: this node lacks the capability identity.workload',
    );
    expect(bed.machine.startCount).toBe(0);
  });

  it('has its certificate before its container starts', async () => {
    const bed = new IdentityBed();
    await bed.start();
    await bed.order();
    expect(bed.requestOfContainer()).toMatchObject({
      env: { CLOUDLESS_IDENTITY_DIR: '/var/run/cloudless/identity' },
      volumes: [
        {
          mountPath: '/var/run/cloudless/identity',
          readOnly: true,
          source: { kind: 'prepared', path: '/identities/web-1', inMemory: true },
        },
      ],
    });
    expect(bed.workloadFiles.contents.get('web-1')?.chainPem).toMatch(/^chain-of-web-1 /);
  });

  it('waits for the coordinator at its first start, says so, and starts on its own later', async () => {
    const bed = new IdentityBed();
    const { issueWorkloadCertificate } = bed.coordinator;
    await bed.start();
    bed.coordinator.issueWorkloadCertificate = () =>
      Promise.reject(new CloudlessError('unavailable', 'the connection broke'));
    await bed.order();
    expect(bed.summarizeReport()).toMatchObject({
      phase: 'STARTING',
      reason: expect.stringMatching(
        /^spec.identity: no certificate for the replica: the connection broke, trying again in /,
      ) as unknown,
    });
    expect(bed.machine.startCount).toBe(0);
    bed.coordinator.issueWorkloadCertificate = issueWorkloadCertificate;
    await bed.clock.advance(60_000);
    expect(bed.machine.startCount).toBe(1);
  });

  it('restarts in place without a coordinator while its certificate is valid', async () => {
    const bed = new IdentityBed();
    await bed.start();
    await bed.order();
    bed.coordinator.reachable = false;
    bed.coordinator.dropConnections();
    bed.machine.exit(toContainerId(bed.requireReport('web-1').containerId), 1);
    await bed.clock.advance(120_000);
    expect(bed.machine.startCount).toBe(2);
  });

  it('keeps its files over a restart of the agent, and loses them when it is forgotten', async () => {
    const bed = new IdentityBed();
    await bed.start();
    await bed.order();
    await bed.workloadFiles.open('left-over');
    await bed.restart();
    expect([...bed.workloadFiles.contents.keys()]).toEqual(['web-1']);
    expect(bed.machine.startCount).toBe(1);
    bed.coordinator.sendOrder(aStopOrder({ preStopMs: 0, graceMs: 0 }));
    await settle();
    expect([...bed.workloadFiles.contents.keys()]).toEqual(['web-1']);
    bed.coordinator.sendOrder(aForgetOrder({ revision: 30n }));
    await settle();
    expect([...bed.workloadFiles.contents.keys()]).toEqual([]);
  });

  it('has new roots and a new certificate before the node confirms the roots of a rotation', async () => {
    const bed = new IdentityBed();
    await bed.start();
    await bed.order();
    const order: string[] = [];
    const { issueWorkloadCertificate, renewNodeCertificate } = bed.coordinator;
    bed.coordinator.issueWorkloadCertificate = async (request) => {
      order.push(`workload ${bed.workloadFiles.contents.get('web-1')?.bundlePem}`);
      return issueWorkloadCertificate(request);
    };
    bed.coordinator.renewNodeCertificate = async (request) => {
      order.push(`node ${request.trustBundleGeneration}`);
      return renewNodeCertificate(request);
    };
    await bed.clock.advance(2_000);
    bed.coordinator.send({
      case: 'renewCertificate',
      value: create(RenewCertificateSchema, {
        trustBundle: { generation: 2n, pem: 'roots of generation 2' },
      }),
    });
    await settle();
    expect(order).toEqual(['workload roots of generation 2', 'node 2']);
    expect(bed.machine.startCount).toBe(1);
  });

  it('confirms the roots of a rotation after 30 s when a certificate of a replica does not arrive', async () => {
    const bed = new IdentityBed();
    await bed.start();
    await bed.order();
    bed.coordinator.issueWorkloadCertificate = () => new Promise(() => undefined);
    await bed.clock.advance(2_000);
    const before = bed.authority.renewals.length;
    bed.coordinator.send({
      case: 'renewCertificate',
      value: create(RenewCertificateSchema, { trustBundle: { generation: 2n, pem: 'new' } }),
    });
    await bed.clock.advance(29_000);
    expect(bed.authority.renewals).toHaveLength(before);
    await bed.clock.advance(2_000);
    expect(bed.authority.renewals).toHaveLength(before + 1);
    expect(bed.workloadFiles.contents.get('web-1')).toMatchObject({ bundlePem: 'new' });
  });

  it('keeps its files when its container cannot be stopped while its runtime answers', async () => {
    const bed = new IdentityBed();
    await bed.start();
    await bed.order();
    bed.runtime.stop = () => Promise.reject(new CloudlessError('internal', 'container is busy'));
    await bed.stop({ stopWorkloads: true });
    expect([...bed.workloadFiles.contents.keys()]).toEqual(['web-1']);
  });

  it('loses its files when the agent stops with its workloads', async () => {
    const bed = new IdentityBed();
    await bed.start();
    await bed.order();
    await bed.stop({ stopWorkloads: true });
    expect([...bed.workloadFiles.contents.keys()]).toEqual([]);
  });
});

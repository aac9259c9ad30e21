import { equals } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, type Workload, type WorkloadSpec } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import type { DurableRecords } from '../parts/durable-records.js';
import type { Commit } from './commit-checkers.js';

/** Invariants 1 and 3: every acknowledged call is on the disk, exactly once. */
export class AcknowledgementChecker {
  /** All specs of each workload, by uid and generation. */
  private readonly specs = new Map<string, Map<bigint, WorkloadSpec>>();
  private readonly deletions = new Set<string>();
  private readonly names = new Map<string, string>();
  private waiting: {
    readonly call: string;
    readonly requestId: string;
    readonly workload: Workload;
  }[] = [];
  /** Number of acknowledged calls. */
  acknowledged = 0;

  constructor(
    private readonly records: DurableRecords,
    private readonly reportViolation: (text: string) => void,
  ) {}

  /** Records that a user is about to request the deletion of a workload. */
  recordDeletionRequest(name: string): void {
    this.deletions.add(name);
  }

  /**
   * Records that a user received the success response of a call.
   * @param call - First word of the call, such as `create`.
   * @param workload - The workload in the response.
   */
  recordAcknowledgement(call: string, requestId: string, workload: Workload): void {
    this.acknowledged += 1;
    this.waiting.push({ call, requestId, workload });
  }

  /** Reports deletions that no user requested, and remembers the committed specs. */
  recordCommit({ changes }: Commit): void {
    for (const { kind, id, before, after } of changes) {
      if (kind !== 'workload') continue;
      const record = after as WorkloadRecord | undefined;
      if (record?.spec !== undefined) {
        const specs = this.specs.get(id) ?? new Map<bigint, WorkloadSpec>();
        this.specs.set(id, specs);
        specs.set(record.generation, record.spec);
        this.names.set(id, record.name);
      }
      const wasDeleting = (before as WorkloadRecord | undefined)?.deletionRequestedAt !== undefined;
      const isDeleting = record?.deletionRequestedAt !== undefined;
      if (isDeleting && !wasDeleting && !this.deletions.has(record.name))
        this.reportViolation(`1: ${record.name} is being deleted without a user request`);
    }
  }

  /** Compares the calls that were acknowledged since the last check with the disk. */
  check(): void {
    for (const { call, requestId, workload } of this.waiting.splice(0)) {
      const { uid, generation, name } = workload;
      const spec = this.specs.get(uid)?.get(generation);
      const acknowledgement = `${call} of ${name} (request ${requestId}) was acknowledged with generation ${generation}`;
      if (spec === undefined)
        this.reportViolation(`1: ${acknowledgement}, but that generation is not on the disk`);
      else if (workload.spec !== undefined && !equals(WorkloadSpecSchema, spec, workload.spec))
        this.reportViolation(`1: ${acknowledgement}, but the spec on the disk differs`);
      if (this.records.request(requestId) === undefined)
        this.reportViolation(`3: ${acknowledgement}, but its request id was not stored`);
      const record = this.records.workload(uid)?.value;
      if (call === 'delete' && record !== undefined && record.deletionRequestedAt === undefined)
        this.reportViolation(`1: ${acknowledgement}, but the workload is not being deleted`);
    }
  }
}

import { readFileSync, readdirSync } from 'node:fs';
import {
  CreateWorkloadRequestSchema,
  capabilitiesOf,
  checkSpec,
  refuseUnsupported,
  validateMessage,
} from '@cloudless/api';
import { create } from '@bufbuild/protobuf';
import { parseManifest } from './parse-manifest.js';

const folder = new URL('../../../../examples/', import.meta.url);

describe('the examples', () => {
  it.each(readdirSync(folder))('%s are accepted as they are', (file) => {
    const { workloads, problems } = parseManifest(
      file,
      readFileSync(new URL(file, folder)),
      'default',
    );
    expect(problems).toEqual([]);
    expect(workloads.length).toBeGreaterThan(0);
    for (const { name, spec } of workloads) {
      validateMessage(
        CreateWorkloadRequestSchema,
        create(CreateWorkloadRequestSchema, { name, spec }),
      );
      checkSpec(spec);
      refuseUnsupported(spec);
      // Nothing that only some nodes have.
      expect(
        capabilitiesOf(spec).filter((need) =>
          /apparmor|selinux|privileged|hostpath|runtime-class|^process\./.test(need),
        ),
      ).toEqual([]);
    }
  });
});

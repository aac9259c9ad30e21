import { readFileSync, readdirSync } from 'node:fs';
import { create } from '@bufbuild/protobuf';
import {
  CreateWorkloadRequestSchema,
  listRequiredCapabilities,
  checkSpec,
  checkSupported,
  validateMessage,
} from '@cloudless/api';
import { parseManifest } from './parse-manifest.js';

const folder = new URL('../../../../examples/', import.meta.url);

describe('file in examples/', () => {
  it.each(readdirSync(folder).filter((file) => file.endsWith('.yaml')))(
    '%s is a valid manifest that requires no capability that only some nodes have',
    (file) => {
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
        checkSupported(spec);
        // The examples must not need capabilities that only some nodes have.
        expect(
          listRequiredCapabilities(spec).filter((need) =>
            /apparmor|selinux|privileged|hostpath|runtime-class|^process\./.test(need),
          ),
        ).toEqual([]);
      }
    },
  );
});

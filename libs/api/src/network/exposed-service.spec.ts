import { create } from '@bufbuild/protobuf';
import {
  Port_Protocol as Protocol,
  ServiceSpec_Type as ServiceType,
  WorkloadSpecSchema,
} from '../gen.js';
import { createExposedSpec, validateExpose } from './exposed-service.js';

const HTTP = { name: 'http', containerPort: 8080 };
const DNS = { name: 'dns', containerPort: 53, protocol: Protocol.UDP };

describe('expose of a workload', () => {
  it.each([
    {
      name: 'no port is declared',
      spec: { expose: [{ port: 80 }] },
      expected: [
        {
          field: 'spec.expose[0].port',
          message:
            'the workload declares no port to expose; declare one in spec.ports (flag --port)',
        },
      ],
    },
    {
      name: 'several ports are declared, and none has the number',
      spec: { ports: [HTTP, DNS], expose: [{ port: 80 }] },
      expected: [
        {
          field: 'spec.expose[0].port',
          message:
            'no declared port has the number 80, and there are several; set name to one of http, dns',
        },
      ],
    },
    {
      name: 'the name is not declared',
      spec: { ports: [HTTP], expose: [{ name: 'https', port: 443 }] },
      expected: [
        {
          field: 'spec.expose[0].name',
          message: '"https" is not a declared port; declare it in spec.ports',
        },
      ],
    },
    {
      name: 'a port and its protocol are used twice',
      spec: {
        ports: [HTTP, DNS],
        expose: [
          { name: 'http', port: 80 },
          { name: 'http', port: 80 },
        ],
      },
      expected: [{ field: 'spec.expose[1].port', message: '80 TCP is used twice' }],
    },
  ])('is refused when $name', ({ spec, expected }) => {
    expect([...validateExpose(create(WorkloadSpecSchema, spec))]).toEqual(expected);
  });

  it('leads to the port of that name, of that number, or to the only one', () => {
    const expose = [{ name: 'dns', port: 53 }, { port: 8080 }];
    const both = create(WorkloadSpecSchema, { ports: [HTTP, DNS], expose });
    expect([...validateExpose(both)]).toEqual([]);
    expect(createExposedSpec('web', both)?.ports).toMatchObject([
      { name: 'dns', port: 53, targetPort: 'dns', protocol: Protocol.UDP },
      { name: 'http', port: 8080, targetPort: 'http' },
    ]);
    const single = create(WorkloadSpecSchema, { ports: [HTTP], expose: [{ port: 80 }] });
    expect(createExposedSpec('web', single)?.ports).toMatchObject([
      { name: 'http', port: 80, targetPort: 'http' },
    ]);
  });

  it('makes a service at a virtual address, whose ports are no ports of nodes', () => {
    const ports = [{ ...HTTP, hostPort: 30_080 }];
    const spec = create(WorkloadSpecSchema, { ports, expose: [{ name: 'http', port: 30_080 }] });
    expect(createExposedSpec('web', spec)).toMatchObject({
      type: ServiceType.CLUSTER_IP,
      ports: [{ port: 30_080, nodePort: 0 }],
    });
  });
});

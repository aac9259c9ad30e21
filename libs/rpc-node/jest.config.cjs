module.exports = { preset: '../../jest.preset.js', displayName: 'rpc-node' };
